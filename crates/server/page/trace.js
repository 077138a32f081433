// The experts of one answer: which layer gave which token to which experts.

export class Trace {
  /** `label` names the prompt; `facts` are those of `/model`. */
  constructor(label, facts) {
    this.label = label;
    /** Numbers of the layers that have experts; a row of the map is an index into them. */
    this.layers = facts.experts.map((count, layer) => (count > 0 ? layer : -1)).filter((layer) => layer >= 0);
    this.experts = Math.max(...facts.experts);
    this.perToken = Math.max(...facts.experts_per_token);
    this.counts = new Uint32Array(this.layers.length * this.experts);
    this.weights = new Float32Array(this.counts.length);
    this.tokens = [];
  }

  /** Takes tokens with their experts, and what else each of them could have been. */
  add(tokens, logprobs) {
    tokens.forEach(({ text, experts }, index) => {
      const rows = this.layers.map((layer) => experts[layer]);
      rows.forEach((chosen, row) => chosen.forEach(([expert, weight]) => {
        this.counts[row * this.experts + expert] += 1;
        this.weights[row * this.experts + expert] += weight;
      }));
      const { logprob = null, top_logprobs: top = [] } = logprobs[index] ?? {};
      this.tokens.push({ text, rows, logprob, top });
    });
  }

  count(row, expert) {
    return this.counts[row * this.experts + expert];
  }

  /** The weight that a token gave an expert; 0 if it did not choose it. */
  weight(token, row, expert) {
    return this.tokens[token].rows[row].find(([chosen]) => chosen === expert)?.[1] ?? 0;
  }

  /** How many experts had a token at all, as a share. */
  used() {
    return this.counts.reduce((sum, count) => sum + (count > 0 ? 1 : 0), 0) / this.counts.length;
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
}
