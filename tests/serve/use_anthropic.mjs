// use_anthropic.mjs URL: uses Anthropic's client as an application does; throws on the first difference.
import assert from 'node:assert';
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const model = 'llama-tiny';
const messages = [{ role: 'user', content: 'Hello' }];

const whole = await client.messages.create({ model, max_tokens: 12, system: 'Be brief.', messages, temperature: 0 });
assert.equal(whole.role, 'assistant');
assert.ok(['end_turn', 'max_tokens'].includes(whole.stop_reason));
const text = whole.content.map((block) => block.text).join('');

let streamed = '';
const stream = client.messages.stream({ model, max_tokens: 12, system: 'Be brief.', messages, temperature: 0 });
stream.on('text', (part) => { streamed += part; });
const final = await stream.finalMessage();
assert.equal(streamed, text);
assert.equal(final.usage.output_tokens, whole.usage.output_tokens);

const input_schema = { type: 'object', properties: { city: { enum: ['Paris', 'Rome'] } }, required: ['city'], additionalProperties: false };
const tools = ['weather', 'climate'].map((name) => ({ name, description: `The ${name} of a city.`, input_schema }));
const request = { model, max_tokens: 200, messages, tools, tool_choice: { type: 'any' } };
const named = { ...request, tool_choice: { type: 'tool', name: 'weather' } };  // streamed as it is written
for (const answer of [await client.messages.create(request), await client.messages.stream(request).finalMessage(),
  await client.messages.stream(named).finalMessage()]) {
  assert.equal(answer.stop_reason, 'tool_use');
  const call = answer.content.find((block) => block.type === 'tool_use');
  assert.ok(['weather', 'climate'].includes(call.name));
  assert.ok(['Paris', 'Rome'].includes(call.input.city));
  await client.messages.create({
    model, max_tokens: 4, tools,
    messages: [...messages, { role: 'assistant', content: answer.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'warm' }] }],
  });
}

const salted = { model, max_tokens: 2, messages: [{ role: 'user', content: 'once upon a time '.repeat(40) }], cache_salt: 'mine' };
await client.messages.create(salted);
assert.ok((await client.messages.create(salted)).usage.cache_read_input_tokens > 0);
assert.equal((await client.messages.create({ ...salted, cache_salt: 'yours' })).usage.cache_read_input_tokens, 0);
assert.ok(whole._request_id);

const counted = await client.messages.countTokens({ model, messages, system: 'Be brief.' });
assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
await assert.rejects(client.messages.create({ model, max_tokens: 4, messages: [{ role: 'king', content: 'x' }] }), Anthropic.BadRequestError);
await assert.rejects(client.messages.create({ model: 'none', max_tokens: 4, messages }), Anthropic.NotFoundError);
console.log('clients_test: @anthropic-ai/sdk passed');
