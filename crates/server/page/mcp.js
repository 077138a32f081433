// A client of one MCP server over streamable HTTP (modelcontextprotocol.io): the tools that it has, and their calls.

/** The version that is asked for. What is used here is the same in all versions since 2025-03-26. */
const VERSION = '2025-11-25';
/** A server that does not answer within these milliseconds has no tools for now; a call may take any time. */
const PATIENCE = 8_000;
/** Pages of a list of tools, and continuations of a stream, that are asked for at most. */
const MOST_PAGES = 50;

/** A server that does not do what it must, in words. */
export class McpFailure extends Error {}

export class McpClient {
  constructor(url, key = '') {
    Object.assign(this, { url, key, session: null, version: null, title: '', last: 0 });
  }

  /** Opens a session. */
  async connect() {
    Object.assign(this, { session: null, version: null });
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'gristmill', version: '1' } };
    const { protocolVersion, serverInfo } = await this.ask('initialize', params, AbortSignal.timeout(PATIENCE));
    Object.assign(this, { version: String(protocolVersion), title: String(serverInfo?.title ?? serverInfo?.name ?? '').slice(0, 80) });
    await this.post({ method: 'notifications/initialized' }, AbortSignal.timeout(PATIENCE));
  }

  /** { name, description, inputSchema } of each tool. */
  async tools() {
    const found = [];
    for (let page = 0, cursor; page < MOST_PAGES; page += 1) {
      const { tools, nextCursor } = await this.ask('tools/list', cursor ? { cursor } : {}, AbortSignal.timeout(PATIENCE));
      if (!Array.isArray(tools)) throw new McpFailure('its list of tools is no list');
      found.push(...tools.filter((tool) => typeof tool?.name === 'string'));
      if (!(cursor = nextCursor)) break;
    }
    return found;
  }

  /** What a call returns, as a text for the model. If the server has lost the session, a new one is opened. */
  async call(name, given, signal) {
    const ask = () => this.ask('tools/call', { name, arguments: given }, signal);
    const result = await ask().catch(async (error) => {
      if (!error.hasNoSession) throw error;
      await this.connect();
      return ask();
    });
    return textOf(result);
  }

  /** The result of a request. */
  async ask(method, params, signal) {
    const id = this.last += 1;
    const cancel = () => this.post({ method: 'notifications/cancelled', params: { requestId: id } }, AbortSignal.timeout(PATIENCE)).catch(() => {});
    if (method === 'tools/call') signal.addEventListener('abort', cancel, { once: true });
    try {
      const answer = await this.answerTo(id, await this.post({ id, method, params }, signal), signal);
      if (answer.error) throw new McpFailure(String(answer.error.message ?? 'it refuses').slice(0, 500));
      return answer.result ?? {};
    } catch (error) {
      throw error.name === 'TimeoutError' ? new McpFailure('it does not answer in time') : error;
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  }

  /** The answer to a request: the reply itself, or one of its events. A stream that ends before the answer is continued. */
  async answerTo(id, reply, signal) {
    const isAnswer = (message) => message?.id === id && !message.method;
    if (!reply.headers.get('content-type')?.startsWith('text/event-stream')) {
      const found = [await reply.json().catch(() => null)].flat().find(isAnswer);
      if (!found) throw new McpFailure('its reply is no answer of MCP');
      return found;
    }
    for (let last = null, count = 0; count < MOST_PAGES; count += 1) {
      for await (const event of events(reply)) {
        last = event.id ?? last;
        if (isAnswer(event.message)) return event.message;
        if (event.message?.method && event.message.id !== undefined) this.answer(event.message);
      }
      if (last === null) break;
      reply = await this.send({ method: 'GET', headers: { 'last-event-id': last } }, signal);
    }
    throw new McpFailure('its reply ended before the answer');
  }

  /** Servers may ask clients too. This one answers pings only. */
  answer({ id, method }) {
    const refusal = { error: { code: -32601, message: `${method} is not supported` } };
    this.post({ id, ...(method === 'ping' ? { result: {} } : refusal) }, AbortSignal.timeout(PATIENCE)).catch(() => {});
  }

  async post(message, signal) {
    const body = JSON.stringify({ jsonrpc: '2.0', ...message });
    const reply = await this.send({ method: 'POST', headers: { 'content-type': 'application/json' }, body }, signal);
    this.session = reply.headers.get('mcp-session-id') ?? this.session;
    return reply;
  }

  async send({ headers, ...options }, signal) {
    const all = { accept: 'application/json, text/event-stream', ...headers };
    if (this.session) all['mcp-session-id'] = this.session;
    if (this.version) all['mcp-protocol-version'] = this.version;
    if (this.key) all.authorization = `Bearer ${this.key}`;
    const reply = await fetch(this.url, { ...options, headers: all, signal, credentials: 'omit', cache: 'no-store' }).catch((error) => {
      if (['AbortError', 'TimeoutError'].includes(error.name)) throw error;
      throw new McpFailure('it does not answer, or does not allow requests of this page (CORS)');
    });
    if (reply.ok) return reply;
    const said = await reply.text().then((text) => JSON.parse(text).error.message).catch(() => null);
    const words = { 401: 'it wants a key', 403: 'it does not let this page ask', 405: 'it does not speak streamable HTTP' }[reply.status];
    throw Object.assign(new McpFailure(words ?? `it refuses with status ${reply.status}${said ? `: ${String(said).slice(0, 300)}` : ''}`),
      // The protocol has 404 for this; published servers also reply 400.
      { hasNoSession: [400, 404].includes(reply.status) && this.session !== null });
  }
}

/** The messages of a stream of events, with the id of each event. */
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, data, id] = ['', '', null];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data:')) data += `${line.slice(5)}\n`;
        if (line.startsWith('id:')) id = line.slice(3).trim();
        if (line !== '') continue;
        yield { id, message: parsed(data) };
        [data, id] = ['', null];
      }
    }
  } catch (error) {
    if (['AbortError', 'TimeoutError'].includes(error.name)) throw error;
    // The connection broke: the stream may be continued.
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Texts as they are; of what a model cannot read, what it is. */
function textOf({ content, structuredContent, isError }) {
  const part = ({ type, text, mimeType, data, uri, name, resource } = {}) => {
    if (type === 'text') return String(text);
    if (type === 'resource') return resource?.text ?? `[${resource?.mimeType ?? 'a resource'}: ${resource?.uri}]`;
    if (type === 'resource_link') return `[${name ?? 'a resource'}: ${uri}]`;
    return `[${type}${mimeType ? `: ${mimeType}` : ''}${data ? `, ${data.length} characters in base64` : ''}]`;
  };
  const parts = Array.isArray(content) ? content.map(part) : [];
  if (parts.length === 0 && structuredContent) parts.push(JSON.stringify(structuredContent));
  return parts.join('\n') || (isError ? 'The tool failed.' : 'The tool returned nothing.');
}
