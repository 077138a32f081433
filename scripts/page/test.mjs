// Tests the page of `gristmill serve` in Chromium, and writes the screenshots of the docs.
//
//     node test.mjs http://127.0.0.1:8080 http://127.0.0.1:8081 ../../docs
//
// The first server has the built-in model, the second also the key "secret". The first was started with `--allow-mcp
// http://127.0.0.1:PORT` for two ports, which `MCP_PORTS` names. `CHROMIUM` names another browser, `ONLY` some words of the
// tests to run.

import * as answers from './answers.mjs';
import * as context from './context.mjs';
import * as conversations from './conversations.mjs';
import * as experts from './experts.mjs';
import * as failures from './failures.mjs';
import * as files from './files.mjs';
import { browser, facts, proxy } from './harness.mjs';
import * as images from './images.mjs';
import * as looks from './looks.mjs';
import * as mcp from './mcp.mjs';
import * as models from './models.mjs';
import * as safety from './safety.mjs';

let failed = 0;
for (const { tests, plain = [] } of [experts, answers, conversations, models, context, mcp, failures, files, images, safety, looks]) {
  for (const [name, test] of Object.entries(tests)) {
    if (process.env.ONLY && !name.includes(process.env.ONLY)) continue;
    // The built-in model has no chat template: what a chat needs is scripted.
    proxy.reset(plain.includes(name) ? null : { ...facts, chat_template: true });
    const begin = Date.now();
    try {
      await test();
      console.log(`ok: ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED: ${name}\n${error.stack}`);
    }
  }
}
await browser.close();
proxy.close();
process.exitCode = failed > 0 ? 1 : 0;
