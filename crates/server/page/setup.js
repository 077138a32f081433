// The settings of one conversation: a preset, its system prompt, its sampling. They are kept with it.

import { announce, button, byId, isEnter, make } from './dom.js';
import { area, labelled, openForm, samplingFields } from './form.js';
import * as presets from './presets.js';
import * as settings from './settings.js';
import { SETUP } from './shape.js';

/** Shows the form; `save` takes the new settings. `defaults` are the server's. */
export function open(setup, defaults, save) {
  const element = byId('setup');
  const body = make('div', { class: 'fields' });
  const preset = make('select', { on: { change: () => choose(presets.named(preset.value)) } });
  const remove = button('Delete this preset', () => { presets.remove(preset.value); list(''); });
  const name = make('input', { maxlength: 100, placeholder: 'Name', autocomplete: 'off', 'aria-label': 'Name of the new preset' });
  const form = make('form', { method: 'dialog' },
    make('h2', { id: 'setup-title', text: 'This conversation' }),
    make('div', { class: 'preset' }, labelled('preset', 'Preset', null, preset), remove),
    body,
    make('div', { class: 'keep-preset' }, name, button('Keep as a preset', keep, { class: 'secondary' })),
    make('div', { class: 'row-end' },
      button('Cancel', () => element.close()),
      make('button', { class: 'primary', text: 'Save' })));

  function fill(values) {
    body.replaceChildren(area('system', 'System prompt', 'Tells the model how to behave; it stands before the messages.', 5, values.system),
      samplingFields(values, { ...defaults, ...settings.set() }));
  }

  function list(chosen) {
    const known = presets.all();
    preset.replaceChildren(make('option', { value: '', text: known.length > 0 ? 'none' : 'none yet' }),
      ...known.map((each) => make('option', { value: each.name, text: each.name })));
    preset.value = known.some((each) => each.name === chosen) ? chosen : '';
    remove.hidden = preset.value === '';
  }

  function choose(found) {
    fill(found?.setup ?? {});
    list(found?.name ?? '');
  }

  function keep() {
    const called = name.value.trim();
    if (!called) return name.focus();
    try {
      presets.keep({ name: called, setup: given(Object.fromEntries(new FormData(form))) });
    } catch (error) {
      name.setCustomValidity(`The browser cannot keep this preset: ${error.message}`);
      return name.reportValidity();
    }
    list(called);
    name.value = '';
    announce(`The preset ${called} is kept.`);
  }

  fill({ system: settings.system(), ...setup });
  list(setup.preset ?? '');
  name.addEventListener('input', () => name.setCustomValidity(''));
  name.addEventListener('keydown', (event) => { if (isEnter(event)) { event.preventDefault(); keep(); } });
  openForm(element, form, (values) => save({ ...given(values), preset: values.preset }));
}

/** What a preset or a conversation keeps of a form: the system prompt, and fields that are not empty. */
const given = (values) => Object.fromEntries(SETUP.filter((name) => name !== 'preset' && (name === 'system' || values[name]))
  .map((name) => [name, values[name] ?? '']));

/** The line that says which settings a conversation has. */
export function line(setup, change) {
  const system = (setup.system ?? settings.system()).trim().replace(/\s+/g, ' ');
  const says = setup.preset || system || null;
  return make('p', { class: 'setup-line' },
    make('span', { class: 'setup-name', text: setup.preset ? 'Preset' : 'System prompt' }),
    make('span', { class: 'setup-text', text: says ?? 'none', title: system || null }), button('Change', change, { 'aria-label': 'Change the settings of this conversation' }));
}
