// The MCP servers that the user has added, which the browser keeps, with their tools and with what the user allows them.

import { ask } from './api.js';
import { McpClient, McpFailure } from './mcp.js';

const NAME = 'gristmill-mcp';
const MOST_SERVERS = 50;
/** Longer results are cut: no model reads them. */
const MOST_RESULT = 400_000;
/** What OpenAI's interface takes as a name of a function. */
const UNNAMED = /[^\w-]/g;

/**
 * Servers: `url`, `key`, whether it `isOn`, the names of tools that are `allowed` without a question, its `client`, its
 * `tools` (null until it is connected), and why it has none (`fault`).
 */
let servers = read();

function read() {
  try {
    const isServer = ({ url }) => webAddress(url) !== null;
    return JSON.parse(localStorage.getItem(NAME) ?? '[]').filter(isServer).slice(0, MOST_SERVERS).map(fresh);
  } catch {
    return [];
  }
}

function fresh({ url, key = '', isOn = true, allowed = [] }) {
  const texts = Array.isArray(allowed) ? allowed.filter((name) => typeof name === 'string') : [];
  return { url: webAddress(url), key: String(key), isOn: isOn !== false, allowed: new Set(texts), client: new McpClient(webAddress(url), String(key)), tools: null, fault: '' };
}

/** Keeps the servers; where the browser cannot, they hold until the page is closed. */
function write() {
  try {
    localStorage.setItem(NAME, JSON.stringify(servers.map(({ url, key, isOn, allowed }) => ({ url, key, isOn, allowed: [...allowed] }))));
  } catch { /* See above. */ }
}

function webAddress(text) {
  const url = typeof text === 'string' && URL.canParse(text) ? new URL(text) : null;
  return url && /^https?:$/.test(url.protocol) && !url.username && !url.password ? url.href : null;
}

export const all = () => servers;

/** What a server is called. */
export const nameOf = ({ client, url }) => client.title || new URL(url).host;

/** Adds a server if it can be used. Throws why not, in words. */
export async function add(text, key) {
  const url = webAddress(text.trim());
  if (url === null) throw new McpFailure('this is no address; it looks like http://localhost:3000/mcp');
  if (servers.some((server) => server.url === url)) throw new McpFailure('it is here already');
  if (servers.length >= MOST_SERVERS) throw new McpFailure(`the page keeps at most ${MOST_SERVERS} servers`);
  const server = fresh({ url, key });
  await connect(server);
  if (server.fault) throw new McpFailure(server.fault);
  servers.push(server);
  write();
}

export function remove(server) {
  servers = servers.filter((other) => other !== server);
  write();
}

export function use(server, isOn) {
  server.isOn = isOn;
  write();
}

/** Whether a tool may be called without a question. */
export function allow(server, name, isAllowed = true) {
  if (isAllowed) server.allowed.add(name);
  else server.allowed.delete(name);
  write();
}

/** Connects a server, unless it is connected; afterwards it has tools or a fault. Callers at the same time share one session. */
function connect(server) {
  if (server.tools) return undefined;
  server.connecting ??= open(server).finally(() => { server.connecting = null; });
  return server.connecting;
}

async function open(server) {
  try {
    await mayConnect(server.url);
    await server.client.connect();
    Object.assign(server, { tools: await server.client.tools(), fault: '' });
  } catch (error) {
    server.fault = error instanceof McpFailure ? error.message : `it cannot be used: ${error.message}`;
  }
}

/** The policy of the page names the servers that it may ask; the browser says nothing of why it refuses others. */
async function mayConnect(url) {
  const { origin } = new URL(url);
  if (origin === location.origin) return;
  const policy = (await ask('page/mcp.js')).headers.get('content-security-policy') ?? '';
  const sources = policy.split(';').find((part) => part.trim().startsWith('connect-src'))?.trim().split(/\s+/) ?? [];
  if (!sources.some((source) => source.toLowerCase() === origin)) {
    throw new McpFailure(`the page may not ask it yet; start gristmill serve with --allow-mcp ${origin}`);
  }
}

/** Connects all servers that are on; those that have a fault are asked again. */
export const connected = () => Promise.all(servers.filter(({ isOn }) => isOn).map(connect));

/** { server, tool, name } of each tool; of two with one name, the second has a number. */
function offered() {
  const names = new Set();
  return servers.filter(({ isOn, tools }) => isOn && tools).flatMap((server) => server.tools.map((tool) => {
    const base = tool.name.replace(UNNAMED, '_').slice(0, 60) || '_';
    let name = base;
    for (let number = 2; names.has(name); number += 1) name = `${base}_${number}`;
    names.add(name);
    return { server, tool, name };
  }));
}

/** The tools as the model is offered them. */
export const definitions = () => offered().map(({ tool, name }) => ({ type: 'function', function: {
  name, description: String(tool.description ?? tool.title ?? ''), parameters: tool.inputSchema ?? { type: 'object' } } }));

/** The server and the tool that a call means, or undefined. */
export const find = (name) => offered().find((each) => each.name === name);

/** Whether a call may run without a question. */
export const isAllowed = (found) => found.server.allowed.has(found.tool.name);

/** Runs a call; `given` is its arguments as JSON. */
export async function run({ server, tool }, given, signal) {
  let values;
  try {
    values = JSON.parse(given || '{}');
  } catch {
    return 'The arguments of the call are not JSON.';
  }
  const text = await server.client.call(tool.name, values, signal);
  return text.length > MOST_RESULT ? `${text.slice(0, MOST_RESULT)}\n[The rest of ${text.length} characters is left out.]` : text;
}
