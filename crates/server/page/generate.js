// One answer, from the request to its last event.

import { ask, events, Unreachable } from './api.js';
import { failure, Fault } from './failure.js';
import { watch } from './progress.js';
import * as settings from './settings.js';

/** Alternatives of each token, where they are shown. */
const ALTERNATIVES = 8;

/**
 * Fills a version from the server's events. `begin` gives the facts of the model, the tools that it may call, and a trace that
 * gets the tokens with their experts, or null. `changed` is called after each event; `progress` gets how far the prompt is read until the first token. With `continued`, the last message is the
 * beginning of this answer.
 */
export async function generate({ begin, messages, setup, continued, version, signal, changed, progress }) {
  const [reading, earlier] = [new AbortController(), version.usage];
  const stopReading = () => { reading.abort(); progress(null); };
  signal.addEventListener('abort', stopReading, { once: true });
  try {
    const { facts, trace, tools } = await begin();
    const way = facts.chat_template ? chatting(messages, setup, continued, trace, facts, tools) : continuing(messages, setup, trace, facts);
    watch(way.prompt, reading.signal, progress);
    const reply = await ask(way.path, { body: way.body, signal });
    for await (const event of events(reply)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) version.usage = sum(earlier, event.usage);
      if (event.choices?.[0] && way.take(event.choices[0], version)) stopReading();
      changed();
    }
    // The stream has ended without its last event.
    if (version.finish === null) throw new Unreachable(true);
  } catch (error) {
    if (signal.aborted) version.finish = 'stopped';
    else Object.assign(version, { finish: 'error', failure: failure(error) });
  }
  stopReading();
  changed();
}

/** The usage of an answer that was continued: its tokens and times together. */
function sum(earlier, usage) {
  const [before] = earlier?.gristmill?.choices ?? [];
  const [now] = usage.gristmill?.choices ?? [];
  if (!before || !now) return usage;
  const choice = { ...now, decode_ms: before.decode_ms + now.decode_ms, queue_ms: before.queue_ms + now.queue_ms };
  return { ...usage, completion_tokens: earlier.completion_tokens + usage.completion_tokens, gristmill: { choices: [choice] } };
}

const common = (facts) => ({ model: facts.model, stream: true, stream_options: { include_usage: true } });

/** A conversation, by the chat template of the model. `take` returns whether there was something to see. */
function chatting(messages, setup, continued, trace, facts, tools) {
  const prompt = { model: facts.model, messages, ...settings.fields(setup) };
  if (tools.length > 0) prompt.tools = tools;
  if (continued) Object.assign(prompt, { continue_final_message: true, add_generation_prompt: false });
  const body = { ...prompt, ...common(facts) };
  if (trace) Object.assign(body, { experts: true, logprobs: true, top_logprobs: ALTERNATIVES });
  const take = ({ delta, finish_reason: finish, gristmill, logprobs }, version) => {
    const calls = delta.tool_calls ?? [];
    version.text += delta.content ?? '';
    version.reasoning += delta.reasoning_content ?? '';
    for (const { id, function: { name, arguments: given } } of calls) version.calls.push({ id, name, arguments: given });
    version.finish ??= finish;
    trace?.add(gristmill?.tokens ?? [], logprobs?.content ?? []);
    return Boolean(delta.content || delta.reasoning_content || calls.length > 0);
  };
  return { path: 'v1/chat/completions', body, prompt, take };
}

/** A text that goes on, for a model without a chat template. */
function continuing(messages, setup, trace, facts) {
  const { enable_thinking, ...fields } = settings.fields(setup);
  if (settings.tools().length > 0) throw new Fault('settings', 'The model has no chat template, so it takes no tools. Remove them from the settings.');
  if (enable_thinking !== undefined) throw new Fault('settings', 'The model has no chat template, so thinking cannot be set.');
  const prompt = messages.map(({ content }) => content).join('');
  const body = { prompt, max_tokens: facts.context, ...common(facts), ...fields };
  if (trace) Object.assign(body, { experts: true, logprobs: ALTERNATIVES });
  const take = ({ text, finish_reason: finish, gristmill, logprobs }, version) => {
    version.text += text;
    version.finish ??= finish;
    trace?.add(gristmill?.tokens ?? [], (logprobs?.tokens ?? []).map((token, index) => ofLists(logprobs, token, index)));
    return Boolean(text);
  };
  return { path: 'v1/completions', body, prompt: { model: facts.model, prompt }, take };
}

/** One token of the older form of log-probabilities, in the newer. */
function ofLists({ token_logprobs: own, top_logprobs: top }, token, index) {
  const likeliest = Object.entries(top[index] ?? {}).map(([text, logprob]) => ({ token: text, logprob }));
  likeliest.sort((a, b) => b.logprob - a.logprob);
  return { token, logprob: own[index], top_logprobs: likeliest };
}
