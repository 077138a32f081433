// Presets: settings of a conversation that have a name.

import { readPreset } from './shape.js';

const NAME = 'gristmill-presets';

/** The presets that the browser has; one that is damaged is left out. */
export function all() {
  try {
    return JSON.parse(localStorage.getItem(NAME) ?? '[]').flatMap((preset) => {
      try {
        return [readPreset(preset, 'a preset')];
      } catch {
        return [];
      }
    });
  } catch {
    return [];
  }
}

export const named = (name) => all().find((preset) => preset.name === name);

/** Keeps presets, in place of those with the same names. Throws if the browser cannot. */
export function keep(...presets) {
  presets.forEach((preset) => readPreset(preset, preset.name));
  const names = new Set(presets.map(({ name }) => name));
  write([...all().filter(({ name }) => !names.has(name)), ...presets]);
}

export function remove(name) {
  write(all().filter((preset) => preset.name !== name));
}

function write(presets) {
  presets.sort((a, b) => a.name.localeCompare(b.name));
  localStorage.setItem(NAME, JSON.stringify(presets));
}
