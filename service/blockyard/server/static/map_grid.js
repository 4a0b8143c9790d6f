// How the blocks of a pool are laid out: row by row, each cell one block, or as many as it takes.

const LARGEST = 18; // pixels, of a cell with the gap after it
const SMALLEST = 5;

/**
 * The grid of the largest cells with which `numBlocks` fit into `width` by `height` pixels:
 * `{size, columns, rows, run, numCells}`, `run` being the number of blocks in a cell.
 */
export function gridFor(numBlocks, width, height) {
  for (let size = LARGEST; size >= SMALLEST; size--) {
    const columns = Math.max(1, Math.floor(width / size));
    const rows = Math.ceil(numBlocks / columns);
    if (rows * size <= height) return { size, columns, rows, run: 1, numCells: numBlocks };
  }
  const columns = Math.max(1, Math.floor(width / SMALLEST));
  const run = Math.ceil(numBlocks / (columns * Math.floor(height / SMALLEST)));
  const numCells = Math.ceil(numBlocks / run);
  return { size: SMALLEST, columns, rows: Math.ceil(numCells / columns), run, numCells };
}

/** The first and the last block of a cell. */
export function blocksOf(cell, grid, numBlocks) {
  return [cell * grid.run, Math.min((cell + 1) * grid.run, numBlocks) - 1];
}
