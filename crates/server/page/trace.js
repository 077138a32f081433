// The experts of one answer: which layer gave which token to which experts.

export class Trace {
  /** `label` names the prompt; `facts` are those of `/model`. */
  constructor(label, facts) {
    this.label = label;
    this.model = facts.name;
    const has = (layer) => facts.experts[layer] > 0;
    /** Numbers of the layers that have experts; a row of the map is an index into them. */
    this.layers = facts.experts.map((_, layer) => layer).filter(has);
    /** Experts of each row, and the most of them. */
    this.sizes = this.layers.map((layer) => facts.experts[layer]);
    this.experts = Math.max(...this.sizes);
    this.counts = new Uint32Array(this.layers.length * this.experts);
    this.weights = new Float32Array(this.counts.length);
    /** Choices of each row's router: an even load is an equal part of them. */
    this.choices = new Uint32Array(this.layers.length);
    this.tokens = [];
  }

  /** Takes tokens with their experts, and what else each of them could have been. */
  add(tokens, logprobs) {
    tokens.forEach(({ text, experts }, index) => {
      const rows = this.layers.map((layer) => experts[layer]);
      rows.forEach((chosen, row) => chosen.forEach(([expert, weight]) => {
        this.counts[row * this.experts + expert] += 1;
        this.weights[row * this.experts + expert] += weight;
        this.choices[row] += 1;
      }));
      const { logprob = null, top_logprobs: top = [] } = logprobs[index] ?? {};
      this.tokens.push({ text, rows, logprob, top });
    });
  }

  /** Whether two answers have the same layers with as many experts, so that their maps can be compared. */
  isLike(other) {
    return this.layers.join() === other.layers.join() && this.sizes.join() === other.sizes.join();
  }

  count(row, expert) {
    return this.counts[row * this.experts + expert];
  }

  /** How often an expert was picked, as a multiple of an even load: 1 if the router had picked all equally often. */
  load(row, expert) {
    return this.choices[row] > 0 ? this.count(row, expert) * this.sizes[row] / this.choices[row] : 0;
  }

  /** The weight that a token gave an expert; 0 if it did not choose it. */
  weight(token, row, expert) {
    return this.tokens[token].rows[row].find(([chosen]) => chosen === expert)?.[1] ?? 0;
  }

  /** The mean weight of the tokens that an expert was picked for, or null. */
  meanWeight(row, expert) {
    const count = this.count(row, expert);
    return count > 0 ? this.weights[row * this.experts + expert] / count : null;
  }

  /** How many experts had a token at all, as a share. */
  used() {
    const all = this.sizes.reduce((sum, size) => sum + size, 0);
    return this.counts.reduce((sum, count) => sum + (count > 0 ? 1 : 0), 0) / all;
  }

  /** The texts that an expert was picked for: how often, of how many times that the text occurs; the most first. */
  words(row, expert) {
    const found = new Map();
    this.tokens.forEach(({ text }, index) => {
      const word = found.get(text) ?? { text, picked: 0, all: 0 };
      word.all += 1;
      if (this.weight(index, row, expert) > 0) word.picked += 1;
      found.set(text, word);
    });
    const picked = [...found.values()].filter((word) => word.picked > 0);
    return picked.sort((a, b) => b.picked - a.picked || b.picked / b.all - a.picked / a.all);
  }

  /** The cosine of the angle between two answers' counts: 1 if they use experts in the same proportions. */
  similarity(other) {
    let [both, own, others] = [0, 0, 0];
    this.counts.forEach((count, index) => {
      both += count * other.counts[index];
      own += count ** 2;
      others += other.counts[index] ** 2;
    });
    return own && others ? both / Math.sqrt(own * others) : 0;
  }

  /** The cells whose loads differ most from those of another answer. */
  mostDifferent(other, count) {
    const cells = this.sizes.flatMap((size, row) => Array.from({ length: size }, (_, expert) => {
      const [own, others] = [this.load(row, expert), other.load(row, expert)];
      return { row, expert, own, others, difference: own - others };
    }));
    return cells.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference)).slice(0, count);
  }
}
