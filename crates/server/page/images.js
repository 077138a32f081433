// Images that are attached: as `data:` URLs, which are kept with the conversation and sent with it. No other host sees them.

import { Unreadable } from './pdf.js';

/** Larger files are refused before they are decoded. */
export const MOST_BYTES = 64 << 20;
/** The long side of what is kept, in pixels: models see no more of most images. */
const SIDE = 2048;
/** A file of one of these types and of at most these bytes is kept as it is. */
const AS_IT_IS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const SMALL = 1 << 20;

export const isImage = ({ type }) => type.startsWith('image/') && type !== 'image/svg+xml';

/** A file as a `data:` URL. Large images, and those of types that the server does not read, are drawn again. */
export async function dataUrl(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: 'from-image' }).catch(() => {
    throw new Unreadable('no image that this browser can read');
  });
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && file.size <= SMALL && AS_IT_IS.includes(file.type)) {
    bitmap.close();
    return read(file);
  }
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const context = canvas.getContext('2d');
  // JPEG has no transparency: what was transparent would be black.
  Object.assign(context, { fillStyle: '#fff' }).fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL('image/jpeg', 0.9);
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
