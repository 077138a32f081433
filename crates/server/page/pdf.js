// The text of PDF files, by pdf.js, which is loaded when the first one is chosen. A worker reads the file: it has no access to
// the page, and its pictures, fonts and scripts are not used.

/** Larger files are refused. */
export const MOST_BYTES = 64 << 20;
const MOST_PAGES = 2000;

/** Why there is no text, as the end of a sentence about the file. */
export class Unreadable extends Error {}

export const isPdf = ({ name, type }) => type === 'application/pdf' || /\.pdf$/i.test(name);

const WORKER = new URL('./vendor/pdf.worker.min.js', import.meta.url).href;
/** The page's policy lets scripts only have addresses that a named policy has made. This one makes only one. */
const policy = globalThis.trustedTypes?.createPolicy('gristmill', { createScriptURL: () => WORKER });

let loading;

function load() {
  loading ??= import('./vendor/pdf.min.js').catch((error) => {
    loading = undefined;
    throw new Unreadable(`not read, because its reader cannot be loaded: ${error.message}`);
  });
  return loading;
}

/** The text of all pages, at most `most` characters; `progress` takes the number of the page that is read, and of all. */
export async function textOf(file, most, progress) {
  const { getDocument, PDFWorker } = await load();
  const port = new Worker(policy?.createScriptURL('') ?? WORKER, { type: 'module' });
  const task = getDocument({ data: new Uint8Array(await file.arrayBuffer()), worker: PDFWorker.create({ port, verbosity: 0 }),
    disableFontFace: true, useSystemFonts: false, useWasm: false, verbosity: 0 });
  try {
    const document = await task.promise.catch(explain);
    if (document.numPages > MOST_PAGES) throw new Unreadable(`too long: it has ${document.numPages} pages, and ${MOST_PAGES} are read at most`);
    const pages = [];
    let length = 0;
    for (let number = 1; number <= document.numPages; number += 1) {
      progress(number, document.numPages);
      const text = await textOfPage(await document.getPage(number));
      length += text.length;
      if (length > most) throw new Unreadable(`too long: at most ${most} characters of text are read`);
      pages.push(text);
    }
    const text = pages.filter(Boolean).join('\n\n');
    if (!text) throw new Unreadable('without text: its pages may be scanned pictures; use a program that recognises characters (OCR) first');
    return text;
  } catch (error) {
    throw error instanceof Unreadable ? error : new Unreadable(`damaged: ${error.message}`);
  } finally {
    await task.destroy().catch(() => {});
    port.terminate();
  }
}

async function textOfPage(page) {
  const { items } = await page.getTextContent();
  page.cleanup();
  return items.map(({ str = '', hasEOL }) => str + (hasEOL ? '\n' : '')).join('').replace(/[\0\uFFFD]/g, '').trim();
}

function explain(error) {
  if (error.name === 'PasswordException') throw new Unreadable('protected by a password; save it without one first');
  throw new Unreadable(`no PDF that can be read: ${error.message}`);
}
