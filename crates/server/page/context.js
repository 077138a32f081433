// How much of the model's context a conversation fills, and what to do before it is full.

import { ask } from './api.js';
import { button, byId, make } from './dom.js';
import { shown } from './conversation.js';
import { percent, whole } from './numbers.js';

/** From this share of the context on, the page says what to do. */
const NEARLY_FULL = 0.8;
/** Characters of a token where nobody has counted: English has more, most other texts fewer. */
const PER_TOKEN = 4;
/** The server counts drafts of so many characters, when the user has stopped for some milliseconds. */
const COUNTED = [500, 300_000];
const PAUSE = 400;

const guess = (text) => Math.ceil(text.length / PER_TOKEN);
const joined = ({ text, files }) => [...files.map((file) => file.text), text].join('\n');

/** Tokens of the turns that are shown, as of the last answer that the server has counted; what follows it is guessed. */
export function tokensOf(turns) {
  let tokens = 0;
  for (const turn of turns) {
    if (turn.role === 'user') tokens += guess(joined(shown(turn)));
    if (turn.role === 'tool') for (const { content } of turn.results) tokens += guess(content);
    if (turn.role === 'model' && shown(turn)) tokens = ofAnswer(shown(turn), tokens);
  }
  return tokens;
}

/** A model does not read the reasoning of earlier answers. */
function ofAnswer({ usage, text, reasoning, calls }, before) {
  if (!usage) return before + guess(text) + calls.reduce((sum, call) => sum + guess(call.arguments), 0);
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total = prompt + completion } = usage;
  return Math.max(prompt, total - guess(reasoning));
}

export class Context {
  /** `state` gives the facts of the model, the turns that are shown, and the draft; `acts` begin or summarise. */
  constructor(state, acts) {
    Object.assign(this, { state, acts, counted: { text: '', tokens: 0 } });
    this.meter = make('meter', { min: 0, max: 1, high: NEARLY_FULL, optimum: 0 });
    this.figure = make('span');
    byId('context').replaceChildren(this.meter, this.figure);
  }

  update() {
    const { facts, turns, draft } = this.state();
    const text = joined(draft);
    this.count(text, facts);
    const [said, added] = [tokensOf(turns), this.counted.text === text ? this.counted.tokens : guess(text)];
    const [tokens, share] = [said + added, (said + added) / facts.context];
    byId('context').hidden = turns.length === 0 && text.length < COUNTED[0];
    this.meter.value = Math.min(1, share);
    this.meter.setAttribute('aria-label', `Context: about ${whole(tokens)} of ${whole(facts.context)} tokens`);
    byId('context').title = `About ${whole(tokens)} of the ${whole(facts.context)} tokens that the model can read and write in one conversation`;
    this.figure.textContent = percent(share);
    this.advise(turns, tokens, said / facts.context, facts);
  }

  advise(turns, tokens, said, facts) {
    const isTooLong = tokens > facts.context;
    const isNear = said >= NEARLY_FULL;
    byId('advice').hidden = !isTooLong && !isNear;
    if (byId('advice').hidden) return byId('advice').replaceChildren();
    const words = isTooLong
      ? `With this message the conversation has about ${whole(tokens)} tokens, and the model can read ${whole(facts.context)}. Shorten the message, leave out a file, or go on in a new conversation.`
      : `This conversation fills ${percent(said)} of the model’s context. An answer ends where it is full: go on in a new conversation.`;
    // A screen reader need not hear the same again.
    if (byId('advice').firstChild?.textContent === words) return;
    const summarise = facts.chat_template && turns.length > 1 && said < 1;
    byId('advice').replaceChildren(make('p', { text: words }), make('div', { class: 'remedies' },
      summarise ? button('Go on with a summary', this.acts.summarise, { class: 'secondary', title: 'The model summarises this conversation for a new one' }) : null,
      turns.length > 0 ? button('New conversation', this.acts.begin, { class: 'secondary' }) : null));
  }

  /** A long draft is counted; until then, and where the server cannot, the guess holds. */
  count(text, facts) {
    if (this.counted.text === text || this.asked === text) return;
    clearTimeout(this.timer);
    this.asked = null;
    if (text.length < COUNTED[0] || text.length > COUNTED[1]) return;
    this.timer = setTimeout(async () => {
      this.asked = text;
      const found = await ask('tokenize', { body: { model: facts.model, prompt: text } }).then((reply) => reply.json(), () => null);
      if (!found || this.asked !== text) return;
      this.counted = { text, tokens: found.count };
      this.update();
    }, PAUSE);
  }
}
