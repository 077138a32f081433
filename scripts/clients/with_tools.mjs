// The npm packages that call tools for their callers, against a server that plays a script:
// node with_tools.mjs PYTHON FOLDER-OF-SCRIPTS SCRIPTED MODEL.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [python, scripts, scripted, model] = process.argv.slice(2);
const word = randomBytes(8).toString("hex");
const task = "Which word does the mill have?";
const end = "FINISHED";
const mill = { name: "Old mill", stones: 3 };
const ask = `<tool_call>\n{"name": "word_of", "arguments": {"place": "mill"}}\n</tool_call>`;
const wordOf = ({ place }) => (place === "mill" ? word : "none");
const schema = z.object({ place: z.string() });
const description = "The word of a place.";

/** Runs a client against a server whose model asks for the tool, and then gives this answer. */
async function play(what, asks, answer, run) {
  const rules = JSON.stringify([
    [task, asks],
    [word, answer],
  ]);
  const server = spawn(python, [`${scripts}/scripted.py`, scripted, model, rules], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const address = await new Promise((resolve) => server.stdout.once("data", (data) => resolve(String(data).trim())));
    await run(address);
    console.log("ok:", what);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAILED: ${what}`);
    console.error(error);
  } finally {
    server.stdin.end();
  }
}

const answers = (what, run) =>
  play(what, `I ask.\n${ask}`, `I have it. ${end}`, async (address) => {
    const text = await run(address);
    assert.ok(text.includes(end), text);
  });
const makes = (what, run) =>
  play(what, ask, JSON.stringify(mill), async (address) => assert.deepEqual(await run(address), mill));

const messages = [{ role: "user", content: task }];
const openai = (address) => new OpenAI({ baseURL: `${address}/v1`, apiKey: "none" });
const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"] };
const called = { name: "word_of", description, parameters, parse: JSON.parse, function: wordOf };
const runTools = { model: "gpt-5", messages, tools: [{ type: "function", function: called }] };
await answers("openai's runTools, whole", (address) => openai(address).chat.completions.runTools(runTools).finalContent());
await answers("openai's runTools, in events", (address) =>
  openai(address).chat.completions.runTools({ ...runTools, stream: true }).finalContent(),
);

for (const stream of [false, true]) {
  await answers(`anthropic's tool runner, ${stream ? "in events" : "whole"}`, async (address) => {
    const client = new Anthropic({ baseURL: address, apiKey: "none" });
    const tools = [betaZodTool({ name: "word_of", description, inputSchema: schema, run: wordOf })];
    const runner = client.beta.messages.toolRunner({ model: "claude-opus-5", max_tokens: 1000, messages, tools, stream });
    return (await runner.runUntilDone()).content.at(-1).text;
  });
}

const models = {
  "openai-compatible": (address) =>
    createOpenAICompatible({ name: "g", baseURL: `${address}/v1`, apiKey: "none", supportsStructuredOutputs: true })("gpt-5"),
  "openai, chat": (address) => createOpenAI({ baseURL: `${address}/v1`, apiKey: "none" }).chat("gpt-5"),
  "openai, responses": (address) => createOpenAI({ baseURL: `${address}/v1`, apiKey: "none" }).responses("gpt-5"),
  anthropic: (address) => createAnthropic({ baseURL: `${address}/v1`, apiKey: "none" })("claude-sonnet-4-5"),
};
const tools = { word_of: tool({ description, inputSchema: schema, execute: async (given) => wordOf(given) }) };
for (const [name, of] of Object.entries(models)) {
  const same = (address) => ({ model: of(address), tools, stopWhen: stepCountIs(3), prompt: task, maxRetries: 0 });
  await answers(`ai, ${name}, whole`, async (address) => (await generateText(same(address))).text);
  await answers(`ai, ${name}, in events`, async (address) => {
    const result = streamText({ ...same(address), onError: () => {} });
    let text = "";
    for await (const part of result.textStream) text += part;
    return text;
  });
  await makes(`ai, ${name}, a tool beside a response format`, async (address) => {
    const output = Output.object({ schema: z.object({ name: z.string(), stones: z.number() }) });
    return (await generateText({ ...same(address), output })).output;
  });
}
