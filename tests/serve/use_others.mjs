// use_others.mjs URL: uses the `ai` SDK and LangChain as applications do; throws on the first difference.
import assert from 'node:assert';
import { generateObject, generateText, jsonSchema, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';

const url = process.argv[2];
const schema = { type: 'object', properties: { city: { enum: ['Paris', 'Rome'] } }, required: ['city'], additionalProperties: false };

const provider = createOpenAICompatible({ name: 'lamina', baseURL: url, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true });
const model = provider('llama-tiny');
const whole = await generateText({ model, prompt: 'Hello', maxOutputTokens: 12, seed: 5, maxRetries: 0 });
assert.ok(whole.usage.outputTokens <= 12);
const stream = streamText({ model, prompt: 'Hello', maxOutputTokens: 12, seed: 5, maxRetries: 0 });
let text = '';
for await (const part of stream.textStream) text += part;
assert.equal(text, whole.text);
assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
const shaped = await generateObject({ model, schema: jsonSchema(schema), prompt: 'Hello', maxOutputTokens: 200, seed: 1, maxRetries: 0 });
assert.ok(['Paris', 'Rome'].includes(shaped.object.city));
const called = await generateText({
  model, prompt: 'Hello', maxOutputTokens: 200, seed: 1, maxRetries: 0, toolChoice: 'required',
  tools: { weather: tool({ description: 'Weather of a city.', inputSchema: jsonSchema(schema) }) },
});
assert.equal(called.toolCalls[0].toolName, 'weather');
assert.ok(['Paris', 'Rome'].includes(called.toolCalls[0].input.city));
console.log('clients_test: ai passed');

const chat = new ChatOpenAI({ model: 'llama-tiny', apiKey: 'none', maxTokens: 12, maxRetries: 0, configuration: { baseURL: url }, modelKwargs: { seed: 5 } });
const answer = await chat.invoke('Hello');
let streamed = '';
for await (const part of await chat.stream('Hello')) streamed += part.content;
assert.equal(streamed, answer.content);
const place = await new ChatOpenAI({ model: 'llama-tiny', apiKey: 'none', maxTokens: 200, maxRetries: 0, configuration: { baseURL: url } })
  .withStructuredOutput(schema, { name: 'place', method: 'functionCalling' }).invoke('Hello');
assert.ok(['Paris', 'Rome'].includes(place.city));
console.log('clients_test: @langchain/openai passed');
