// Numbers for people.

/** 1234567 as 1.23 M. */
export function short(number) {
  for (const [size, unit] of [[1e12, ' T'], [1e9, ' B'], [1e6, ' M'], [1e3, ' k']]) {
    if (number >= size) return `${(number / size).toPrecision(3)}${unit}`;
  }
  return String(number);
}

export function bytes(number) {
  for (const [size, unit] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`;
  }
  return `${number} B`;
}

export const whole = (number) => number.toLocaleString('en');
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
/** A multiple: 1.2 ×. */
export const times = (number) => `${number.toFixed(number >= 10 ? 0 : 1)} ×`;
export const rate = (tokens, milliseconds) => (milliseconds > 0 ? tokens / (milliseconds / 1000) : null);

export function perSecond(value) {
  if (value == null) return null;
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} tok/s`;
}

/** [1, 1, 1, 2] as the one value that most have, or a range. */
export function range(numbers) {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  return least === most ? String(least) : `${least}–${most}`;
}
