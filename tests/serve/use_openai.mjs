// use_openai.mjs URL PACKAGE: uses the openai client as an application does; throws on the first difference.
import assert from 'node:assert';

const { default: OpenAI } = await import(process.argv[3]);

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
assert.equal((await client.models.retrieve(model)).id, model);
const messages = [{ role: 'user', content: 'Hello' }];
const extra = { seed: 5, ignore_eos: true };

const whole = await client.chat.completions.create({ model, messages, max_completion_tokens: 12, logprobs: true, top_logprobs: 2, ...extra });
assert.equal(whole.usage.completion_tokens, 12);
assert.equal(whole.choices[0].logprobs.content.length, 12);

let text = '';
let usage = null;
let finish = null;
const stream = await client.chat.completions.create({ model, messages, max_completion_tokens: 12, stream: true, stream_options: { include_usage: true }, ...extra });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? '';
  finish = chunk.choices[0]?.finish_reason ?? finish;
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(finish, 'length');
assert.equal(usage.completion_tokens, 12);

const chat = client.chat.completions.stream ? client.chat : client.beta.chat;  // beta before version 5
const helper = chat.completions.stream({ model, messages, max_completion_tokens: 12, ...extra });
assert.equal((await helper.finalChatCompletion()).choices[0].message.content, text);

const parameters = { type: 'object', properties: { city: { enum: ['Paris', 'Rome'] } }, required: ['city'], additionalProperties: false };
const called = await client.chat.completions.create({
  model, messages, max_completion_tokens: 200, seed: 1, tool_choice: 'required',
  tools: [{ type: 'function', function: { name: 'weather', parameters } }],
});
const call = called.choices[0].message.tool_calls[0];
assert.equal(call.function.name, 'weather');
assert.ok(['Paris', 'Rome'].includes(JSON.parse(call.function.arguments).city));

const named = {
  model, messages, max_completion_tokens: 200, seed: 1, tool_choice: { type: 'function', function: { name: 'weather' } },
  tools: [{ type: 'function', function: { name: 'weather', parameters } }],
};
const streamedCall = (await chat.completions.stream(named).finalChatCompletion()).choices[0].message.tool_calls[0].function;
assert.equal(streamedCall.name, 'weather');
assert.equal(streamedCall.arguments, (await client.chat.completions.create(named)).choices[0].message.tool_calls[0].function.arguments);

const several = { ...named, tool_choice: 'required', tools: ['weather', 'climate'].map((name) => ({ type: 'function', function: { name, parameters } })) };
let chunks = 0;
const anyCall = (await chat.completions.stream(several).on('chunk', (chunk) => {
  if (chunk.choices[0]?.delta.tool_calls) ++chunks;
}).finalChatCompletion()).choices[0];
assert.equal(anyCall.finish_reason, 'tool_calls');
assert.deepEqual({ ...anyCall.message.tool_calls[0].function, parsed_arguments: undefined },
  { ...(await client.chat.completions.create(several)).choices[0].message.tool_calls[0].function, parsed_arguments: undefined });
assert.ok(chunks > 3);  // the arguments come as they are written

const shaped = await client.chat.completions.create({
  model, messages, max_completion_tokens: 200, seed: 1,
  response_format: { type: 'json_schema', json_schema: { name: 'place', strict: true, schema: parameters } },
});
assert.ok(['Paris', 'Rome'].includes(JSON.parse(shaped.choices[0].message.content).city));

const legacy = await client.completions.create({ model, prompt: ['To be', 'Shall I'], max_tokens: 4, logprobs: 1, ...extra });
assert.equal(legacy.choices.length, 2);
assert.equal(legacy.choices[1].logprobs.tokens.length, 4);

const packed = await client.embeddings.create({ model, input: ['Hello', 'To be'] });  // base64 on the wire
const plain = await client.embeddings.create({ model, input: ['Hello', 'To be'], encoding_format: 'float' });
assert.equal(packed.data.length, 2);
plain.data[1].embedding.forEach((value, i) => assert.ok(Math.abs(value - packed.data[1].embedding[i]) < 1e-4));

const first = await client.responses.create({ model, input: 'Hello', max_output_tokens: 12, ...extra });
assert.equal(first.status, 'incomplete');
assert.equal(first.output_text, first.output[0].content[0].text);
assert.equal((await client.responses.retrieve(first.id)).output_text ?? first.output_text, first.output_text);
let streamed = '';
const events = await client.responses.create({ model, input: 'Hello', max_output_tokens: 12, stream: true, ...extra });
for await (const event of events) {
  if (event.type === 'response.output_text.delta') streamed += event.delta;
}
assert.equal(streamed, first.output_text);
const next = await client.responses.create({ model, input: 'More', previous_response_id: first.id, max_output_tokens: 4, ...extra });
assert.ok(next.usage.input_tokens > first.usage.input_tokens);
const inputs = [];
for await (const item of await client.responses.inputItems.list(next.id, { limit: 2, order: 'asc' })) inputs.push(item);  // over two pages
assert.deepEqual(inputs.map((item) => item.content[0].text), ['Hello', first.output_text, 'More']);
const used = await client.responses.create({
  model, input: 'Weather?', max_output_tokens: 200, seed: 1, tool_choice: 'required',
  tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
});
assert.equal(used.output[0].name, 'weather');
const calling = await client.responses.create({
  model, input: 'Weather?', max_output_tokens: 200, seed: 1, tool_choice: { type: 'function', name: 'weather' }, stream: true,
  tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
});
let pieces = '';
let ended = null;
for await (const event of calling) {
  if (event.type === 'response.function_call_arguments.delta') pieces += event.delta;
  if (event.type === 'response.completed') ended = event.response;
}
assert.equal(ended.output[0].arguments, pieces);
assert.ok(['Paris', 'Rome'].includes(JSON.parse(pieces).city));
await (client.responses.delete ?? client.responses.del).call(client.responses, first.id);
await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);

const long = await client.chat.completions.create({ model, messages, max_completion_tokens: 400, stream: true, ...extra });
for await (const chunk of long) {
  if (chunk.choices[0]?.delta?.content) break;  // aborts the request
}

await assert.rejects(client.chat.completions.create({ model, messages, temperature: 9 }), (error) => {
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.equal(error.param, 'temperature');
  return true;
});
await assert.rejects(client.chat.completions.create({ model, messages: [{ role: 'user', content: 'word '.repeat(3000) }] }), (error) => {
  assert.equal(error.code, 'context_length_exceeded');
  return true;
});
await assert.rejects(client.chat.completions.create({ model: 'none', messages }), OpenAI.NotFoundError);
console.log(`clients_test: ${process.argv[3]} passed`);
