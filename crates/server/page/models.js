// The models of the server: which one the page talks to. The address names it (`?model=NAME`), so a page keeps its model
// when it is loaded again.

import { ask } from './api.js';
import { byId, make } from './dom.js';

/** How often the progress of a load is asked for, in milliseconds. */
const EVERY = 500;

/**
 * Facts about the model that the page talks to, which is loaded first. `said` shows a text while it waits. `facts.model` is
 * the name for requests; a server with one model needs none.
 */
export async function chosen(said) {
  const models = await listed();
  if (models.length === 1 && models[0].status.value === 'loaded') return await (await ask('model')).json();
  const asked = new URLSearchParams(location.search).get('model');
  const loaded = models.find(({ status }) => status.value === 'loaded');
  const name = (models.length > 1 ? asked : null) ?? (loaded ?? models[0]).id;
  const found = models.find((model) => model.id === name);
  if (models.length > 1) choice(models, name);
  if (found?.status.value !== 'loaded') await load(name, said);
  const facts = await (await ask(`model?model=${encodeURIComponent(name)}`)).json();
  return models.length > 1 ? { ...facts, model: name } : facts;
}

/** The models, each by its name. */
async function listed() {
  const { data } = await (await ask('v1/models')).json();
  return data.filter(({ id, display_name: name }) => id === name);
}

/** Loads a model; meanwhile it shows how much of it is loaded. */
async function load(name, said) {
  said(`Loading ${name} …`);
  const timer = setInterval(async () => {
    const model = await listed().then((models) => models.find(({ id }) => id === name), () => null);
    if (model?.status.value === 'loading') said(`Loading ${name}: ${model.status.progress ?? 0} %`);
  }, EVERY);
  try {
    await ask('models/load', { body: { model: name } });
  } finally {
    clearInterval(timer);
  }
}

/** The name in the bar, as a choice. Another model is another page: its facts, settings and experts differ. */
function choice(models, name) {
  const options = models.map(({ id }) => make('option', { value: id, text: id }));
  const select = make('select', { class: 'bar-models', 'aria-label': 'Model' }, ...options);
  select.value = name;
  select.addEventListener('change', () => {
    const address = new URL(location.href);
    address.searchParams.set('model', select.value);
    location.assign(address);
  });
  byId('models').replaceChildren(select);
  byId('models').hidden = false;
  byId('model').classList.add('visually-hidden');
}
