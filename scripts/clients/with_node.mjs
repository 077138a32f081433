// The npm packages openai and ai: chat, streams, tools, structured output.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const baseURL = `${process.argv[2]}/v1`;
const client = new OpenAI({ baseURL, apiKey: "none" });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Name a colour." }];
const same = { model, messages, max_tokens: 16, temperature: 0 };
const ok = (what) => console.log("ok:", what);

const whole = (await client.chat.completions.create(same)).choices[0].message.content;
let text = "";
for await (const event of await client.chat.completions.create({ ...same, stream: true })) {
  text += event.choices[0]?.delta?.content ?? "";
}
assert.equal(text, whole);
ok("openai, whole and streamed");
const answer = await client.responses.create({ model, input: "Name a colour.", max_output_tokens: 16, temperature: 0 });
assert.equal(answer.output_text, whole);
ok("openai, responses");
await assert.rejects(client.chat.completions.create({ ...same, temperature: -1 }), (error) => error.status === 400);
ok("openai, an error");

const about = { includeUsage: true, supportsStructuredOutputs: true };
const provider = createOpenAICompatible({ name: "gristmill", baseURL, apiKey: "none", ...about });
const chat = provider(model);
const short = { model: chat, temperature: 0, maxOutputTokens: 16, prompt: "Name a colour." };
assert.equal((await generateText(short)).text, whole);
const streamed = streamText(short);
let parts = "";
for await (const part of streamed.textStream) parts += part;
assert.equal(parts, whole);
assert.ok((await streamed.usage).outputTokens > 0);
ok("ai, whole and streamed");
const schema = z.object({ name: z.string().max(20), stones: z.number().int().min(1).max(9) });
const { object } = await generateObject({ model: chat, schema, prompt: "Describe a mill.", maxOutputTokens: 100 });
assert.ok(object.stones >= 1 && object.stones <= 9);
ok("ai, structured output");
const inputSchema = z.object({ place: z.string().max(40) });
const tools = { weather: tool({ description: "The weather of a place", inputSchema, execute: async () => "sunny" }) };
const called = await generateText({
  model: chat,
  tools,
  toolChoice: { type: "tool", toolName: "weather" },
  stopWhen: stepCountIs(1),
  prompt: "What is the weather in Rome?",
  maxOutputTokens: 100,
});
assert.equal(called.toolResults[0].output, "sunny");
ok("ai, a tool");
