// Painting a block map: pixel by pixel, as there are up to a million blocks. A cell of several blocks is a stack
// of their colours, each as high as its share; what is not free is seen, be it ever so little.

const FREE = 1; // codes up to this one, null and free, may give way

/** Paint `codes` by `colors`, a 32-bit pixel a code, into a context of `grid` at `scale` pixels a pixel. */
export function paint(context, codes, grid, colors, scale) {
  const size = Math.round(grid.size * scale);
  const gap = Math.max(1, Math.round(scale));
  const image = context.createImageData(grid.columns * size, grid.rows * size);
  const pixels = new Uint32Array(image.data.buffer);
  const inner = size - gap;
  const layers = new Uint32Array(inner); // colours from the cell's foot up
  for (let cell = 0; cell < grid.numCells; cell++) {
    stack(codes, cell * grid.run, Math.min((cell + 1) * grid.run, codes.length), colors, layers);
    const left = (cell % grid.columns) * size;
    const top = Math.floor(cell / grid.columns) * size;
    for (let y = 0; y < inner; y++) {
      const begin = (top + inner - 1 - y) * image.width + left;
      pixels.fill(layers[y], begin, begin + inner);
    }
  }
  context.putImageData(image, 0, 0);
}

const counts = new Uint32Array(256);

function stack(codes, begin, end, colors, layers) {
  const first = codes[begin];
  let isUniform = true;
  for (let block = begin; block < end; block++) {
    counts[codes[block]]++;
    if (codes[block] !== first) isUniform = false;
  }
  if (isUniform) {
    layers.fill(colors[first]);
    counts[first] = 0;
    return;
  }
  let y = 0;
  let numSeen = 0;
  for (let code = counts.length - 1; code >= 0; code--) {
    if (counts[code] === 0) continue;
    numSeen += counts[code];
    counts[code] = 0;
    let upTo = Math.round((numSeen / (end - begin)) * layers.length);
    if (code > FREE && upTo === y) upTo = y + 1;
    for (; y < upTo && y < layers.length; y++) layers[y] = colors[code];
  }
}

/** CSS colours as pixels. */
export function pixelsOf(colors) {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  return Uint32Array.from(colors, (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0];
  });
}
