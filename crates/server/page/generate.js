// One answer, from the request to its last event.

import { ask, events } from './api.js';
import * as settings from './settings.js';

/** Alternatives of each token, where they are shown. */
const ALTERNATIVES = 8;

/**
 * Fills a version from the server's events. `changed` is called after each; `trace` gets the tokens with their experts, if
 * there is one.
 */
export async function generate({ facts, messages, version, trace, signal, changed }) {
  try {
    const way = facts.chat_template ? chatting(messages, trace) : continuing(messages, trace, facts);
    for await (const event of events(await ask(way.path, { body: way.body, signal }))) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) version.usage = event.usage;
      if (event.choices?.[0]) way.take(event.choices[0], version);
      changed();
    }
    version.finish ??= 'error';
  } catch (error) {
    if (signal.aborted) version.finish = 'stopped';
    else Object.assign(version, { finish: 'error', error: error.message });
  }
  changed();
}

const common = () => ({ stream: true, stream_options: { include_usage: true } });

/** A conversation, by the chat template of the model. */
function chatting(messages, trace) {
  const body = { messages, ...common(), ...settings.fields() };
  if (trace) Object.assign(body, { experts: true, logprobs: true, top_logprobs: ALTERNATIVES });
  const take = ({ delta, finish_reason: finish, gristmill, logprobs }, version) => {
    version.text += delta.content ?? '';
    version.reasoning += delta.reasoning_content ?? '';
    for (const { id, function: { name, arguments: given } } of delta.tool_calls ?? []) {
      version.calls.push({ id, name, arguments: given });
    }
    version.finish ??= finish;
    trace?.add(gristmill?.tokens ?? [], logprobs?.content ?? []);
  };
  return { path: 'v1/chat/completions', body, take };
}

/** A text that goes on, for a model without a chat template. */
function continuing(messages, trace, facts) {
  const { tools, enable_thinking, ...fields } = settings.fields();
  if (tools) throw new Error('The model has no chat template, so it takes no tools. Remove them from the settings.');
  if (enable_thinking !== undefined) throw new Error('The model has no chat template, so thinking cannot be set.');
  const prompt = messages.map(({ content }) => content).join('');
  const body = { prompt, max_tokens: facts.context, ...common(), ...fields };
  if (trace) Object.assign(body, { experts: true, logprobs: ALTERNATIVES });
  const take = ({ text, finish_reason: finish, gristmill, logprobs }, version) => {
    version.text += text;
    version.finish ??= finish;
    trace?.add(gristmill?.tokens ?? [], (logprobs?.tokens ?? []).map((token, index) => ofLists(logprobs, token, index)));
  };
  return { path: 'v1/completions', body, take };
}

/** One token of the older form of log-probabilities, in the newer. */
function ofLists({ token_logprobs: own, top_logprobs: top }, token, index) {
  const likeliest = Object.entries(top[index] ?? {}).map(([text, logprob]) => ({ token: text, logprob }));
  likeliest.sort((a, b) => b.logprob - a.logprob);
  return { token, logprob: own[index], top_logprobs: likeliest };
}
