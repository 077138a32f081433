// The models of the server, and the one that the page talks to. The address names it (`?model=NAME`), so a page keeps its
// model when it is loaded again.

import { ask } from './api.js';
import { byId, make } from './dom.js';
import { failure } from './failure.js';

/** How often the progress of a load is asked for, in milliseconds. */
const EVERY = 500;

/** Groups of the choice, by the status of a model. */
const GROUPS = { loaded: 'Loaded', loading: 'Being loaded', unloaded: 'Loaded when chosen' };

export class Models {
  /** `changed` takes the facts of a model that was chosen, when it is loaded; `said` takes what there is to say of a load. */
  constructor({ changed, said }) {
    Object.assign(this, { changed, said, facts: null, wanted: null, loading: null });
  }

  /** Loads the first model that the page talks to. `facts.model` is the name for requests; a server with one model needs none. */
  async start(said) {
    const models = await listed();
    this.isChoice = models.length > 1;
    const asked = this.isChoice ? new URLSearchParams(location.search).get('model') : null;
    const loaded = models.find(({ status }) => status.value === 'loaded');
    // An address may be older than the server's choice of models.
    this.wanted = (models.find(({ id }) => id === asked) ?? loaded ?? models[0]).id;
    if (this.isChoice) this.build(models);
    this.facts = await this.load(this.wanted, said);
    return this.facts;
  }

  /** Facts about the model that is chosen, as soon as it is loaded. */
  ready(signal) {
    if (!this.loading) return Promise.resolve(this.facts);
    const stopped = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));
    return Promise.race([this.loading, stopped]);
  }

  /** Answers that are being written go on with their model; later ones have this one. */
  choose(name) {
    const loading = this.load(name, this.said);
    Object.assign(this, { loading, wanted: name });
    const isLast = () => this.loading === loading;
    loading.then((facts) => {
      if (!isLast()) return;
      Object.assign(this, { facts, loading: null });
      const address = new URL(location.href);
      address.searchParams.set('model', name);
      history.replaceState(history.state, '', address);
      this.changed(facts);
    }, (error) => {
      if (!isLast()) return;
      Object.assign(this, { loading: null, wanted: this.facts.name });
      this.select.value = this.facts.name;
      this.said(`${name} cannot be loaded. ${failure(error).words}`, 'fault');
    });
  }

  /** The facts of a model, which is loaded first if it is not; `said` takes how much of it is loaded. */
  async load(name, said) {
    const status = async () => (await listed()).find(({ id }) => id === name)?.status;
    if ((await status())?.value !== 'loaded') {
      said(`Loading ${name} …`);
      const timer = setInterval(async () => {
        const { value, progress } = await status().catch(() => null) ?? {};
        if (value === 'loading' && this.wanted === name) said(`Loading ${name}: ${progress ?? 0} %`);
      }, EVERY);
      await ask('models/load', { body: { model: name } }).finally(() => clearInterval(timer));
    }
    const facts = await (await ask(this.isChoice ? `model?model=${encodeURIComponent(name)}` : 'model')).json();
    return this.isChoice ? { ...facts, model: name } : facts;
  }

  /** The name in the bar, as a choice. */
  build(models) {
    this.select = make('select', { class: 'bar-models', 'aria-label': 'Model', on: { change: () => this.choose(this.select.value) } });
    // Other clients load models too, and the server unloads them.
    this.select.addEventListener('focus', () => listed().then((found) => this.list(found), () => {}));
    this.list(models);
    byId('models').replaceChildren(this.select);
    byId('models').hidden = false;
    byId('model').classList.add('visually-hidden');
  }

  list(models) {
    const option = ({ id, status }) => make('option', { value: id, text: status.failed ? `${id} (its last load failed)` : id });
    const group = ([status, label]) => {
      const found = models.filter((model) => model.status.value === status);
      return found.length > 0 ? make('optgroup', { label }, ...found.map(option)) : null;
    };
    this.select.replaceChildren(...Object.entries(GROUPS).map(group).filter(Boolean));
    this.select.value = this.wanted;
  }
}

/** The models, each by its name. */
async function listed() {
  const { data } = await (await ask('v1/models')).json();
  return data.filter(({ id, display_name: name }) => id === name);
}
