// Elements without HTML text: what a model or a file says can only become text here.

/** An element. `on` has listeners, `text` its text, `data` its data attributes; other fields become attributes. */
export function make(tag, { on = {}, text, data = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  Object.assign(element.dataset, data);
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  if (text != null) element.textContent = text;
  element.append(...children.filter((child) => child != null));
  return element;
}

/** A button that looks like text. */
export const button = (text, click, attributes = {}) =>
  make('button', { type: 'button', class: 'quiet', text, on: { click }, ...attributes });

/** Whether a key is Enter itself. Safari sends the Enter that ends an input of Japanese, Chinese or Korean with the code 229. */
export const isEnter = (event) => event.key === 'Enter' && !event.isComposing && event.keyCode !== 229;

export const byId = (id) => document.getElementById(id);

/** Tells a screen reader, and nobody else. */
export function announce(text) {
  byId('status').textContent = text;
}

/** Copies a text, and says so on the button for a moment. */
export async function copy(text, button) {
  const before = button.textContent;
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copySelected(text);
  button.textContent = done ? 'Copied' : 'Not allowed';
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** Copies by selecting the text: browsers have no clipboard on pages of http, except those of this machine. */
function copySelected(text) {
  const [field, focused] = [make('textarea', { class: 'visually-hidden', readonly: true, 'aria-hidden': 'true' }), document.activeElement];
  field.value = text;
  // In an open dialog only its own fields can be selected.
  (document.querySelector('dialog[open]') ?? document.body).append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  focused?.focus();
  return done;
}
