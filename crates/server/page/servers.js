// The part of the settings with MCP servers. What is changed there holds at once.

import { announce, button, isEnter, make } from './dom.js';
import { labelled } from './form.js';
import * as tools from './tools.js';

export function serversField() {
  const list = make('ul', { class: 'servers' });
  const url = make('input', { inputmode: 'url', placeholder: 'http://localhost:3000/mcp', autocomplete: 'off' });
  const key = make('input', { type: 'password', autocomplete: 'off' });
  const said = make('p', { class: 'error', role: 'alert', hidden: true });
  const adds = button('Add', add, { class: 'secondary' });

  async function add() {
    adds.disabled = true;
    said.hidden = true;
    try {
      await tools.add(url.value, key.value.trim());
      url.value = key.value = '';
      announce('The server is added.');
    } catch (error) {
      said.textContent = `The server is not added: ${error.message}.`;
      said.hidden = false;
    }
    adds.disabled = false;
    show();
  }

  function show() {
    list.replaceChildren(...tools.all().map((server) => entry(server, show)));
  }

  for (const input of [url, key]) input.addEventListener('keydown', (event) => { if (isEnter(event)) { event.preventDefault(); add(); } });
  const [urlField, keyField] = [labelled('mcp-url', 'Add a server', 'Its address of streamable HTTP.', url), labelled('mcp-key', 'Key', 'If it wants one; this browser keeps it.', key)];
  // The form of the settings does not keep these.
  url.removeAttribute('name');
  key.removeAttribute('name');
  show();
  tools.connected().then(show);
  return make('fieldset', { class: 'mcp' }, make('legend', { text: 'MCP servers' }),
    make('p', { class: 'muted', text: 'The model can call the tools of these servers. You are asked before each call, unless you always allow a tool.' }),
    list, make('div', { class: 'add-server' }, urlField, keyField, adds), said);
}

function entry(server, show) {
  const use = make('input', { type: 'checkbox', checked: server.isOn, on: { change: async () => { tools.use(server, use.checked); await tools.connected(); show(); } } });
  const count = server.tools?.length ?? 0;
  const state = !server.isOn ? 'not used' : server.fault ? server.fault : server.tools ? `${count} ${count === 1 ? 'tool' : 'tools'}` : 'connecting …';
  const remove = button('Remove', () => { tools.remove(server); show(); }, { 'aria-label': `Remove ${server.url}` });
  return make('li', {}, make('div', { class: 'server-head' },
    make('label', {}, use, make('span', {}, make('b', { text: tools.nameOf(server) }), ` ${server.url}`)), remove),
  make('p', { class: server.isOn && server.fault ? 'error' : 'muted', text: state }), count > 0 && server.isOn ? toolList(server) : null);
}

/** The tools, each with the choice whether its calls ask. */
function toolList(server) {
  const line = ({ name, description }) => {
    const box = make('input', { type: 'checkbox', checked: server.allowed.has(name), on: { change: () => tools.allow(server, name, box.checked) } });
    return make('li', {}, make('label', { title: String(description ?? '') }, box, make('code', { text: name })));
  };
  return make('details', {}, make('summary', { text: 'Tools that run without a question' }), make('ul', { class: 'server-tools' }, ...server.tools.map(line)));
}
