// Calls of tools of MCP servers: the user allows each, or a tool once for all; what they return goes to the model.

import * as tools from './tools.js';

/** So many rounds of calls run without a question after a message; then the user is asked. */
const MOST_ROUNDS = 20;

export class Runs {
  /** `done` takes a call with its place and its result, `changed` the place of a call that has another state. */
  constructor({ done, changed }) {
    // By call: { controller } while it runs, { words } if it failed.
    Object.assign(this, { done, changed, states: new WeakMap() });
  }

  /** What there is to do about a call: { kind, server, tool, words }. One of an unknown tool is for the user. */
  state(version, call) {
    const found = tools.find(call.name);
    if (!found) return { kind: 'manual' };
    const named = { server: tools.nameOf(found.server), tool: found.tool.name };
    if (Object.hasOwn(version.results ?? {}, call.id)) return { kind: 'done', ...named };
    const { controller, words } = this.states.get(call) ?? {};
    if (controller) return { kind: 'runs', ...named };
    return words ? { kind: 'failed', words, ...named } : { kind: 'asks', ...named };
  }

  /** Runs the calls of a new answer that the user has allowed once for all. */
  begin(place) {
    const { chat, turn, version } = place;
    const last = chat.turns.findLastIndex(({ role }) => role === 'user');
    if (chat.turns.slice(last, chat.turns.indexOf(turn)).filter(({ role }) => role === 'tool').length >= MOST_ROUNDS) return;
    for (const call of version.calls) {
      const found = tools.find(call.name);
      if (found && tools.isAllowed(found)) this.run(place, call);
    }
  }

  /** Runs a call; with `always`, its tool is never asked about again. */
  async run(place, call, always = false) {
    const found = tools.find(call.name);
    if (!found || this.states.get(call)?.controller) return;
    if (always) tools.allow(found.server, found.tool.name);
    const controller = new AbortController();
    this.states.set(call, { controller });
    this.changed(place);
    try {
      const text = await tools.run(found, call.arguments, controller.signal);
      this.states.delete(call);
      this.done(place, call, text);
    } catch (error) {
      this.states.set(call, { words: controller.signal.aborted ? 'the call was stopped' : error.message });
      this.changed(place);
    }
  }

  stop(call) {
    this.states.get(call)?.controller?.abort();
  }

  refuse(place, call) {
    this.done(place, call, 'The user does not allow this call.');
  }

  /** Lets the model go on without a result. */
  giveUp(place, call) {
    this.done(place, call, `The call failed: ${this.states.get(call)?.words}.`);
  }
}
