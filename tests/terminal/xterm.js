// A judge of sequences: headless xterm.js. For each line of standard input, bytes in hexadecimal, it
// prints what its terminal then shows, as a line of JSON. Arguments: rows, columns.
const { Terminal } = require('@xterm/headless');
const [rows, cols] = process.argv.slice(2).map(Number);

function colour(cell, back) {
  const value = back ? cell.getBgColor() : cell.getFgColor();
  if (back ? cell.isBgDefault() : cell.isFgDefault()) return '';
  if (back ? cell.isBgRGB() : cell.isFgRGB()) return '#' + value.toString(16).padStart(6, '0');
  return String(value);
}

function show(hex) {
  return new Promise((resolve) => {
    const terminal = new Terminal({ rows, cols, allowProposedApi: true, scrollback: 100 });
    // As text, which is how those that use it pass it the bytes of a terminal.
    terminal.write(Buffer.from(hex, 'hex').toString('utf8'), () => {
      const buffer = terminal.buffer.active;
      const lines = [];
      for (let row = 0; row < rows; row++) {
        const line = buffer.getLine(buffer.baseY + row);
        const cells = [];
        for (let col = 0; col < cols; col++) {
          const cell = line.getCell(col);
          if (cell.getWidth() === 0) continue;
          const flags = [cell.isBold(), cell.isDim(), cell.isItalic(), cell.isUnderline(), cell.isInverse(),
            cell.isInvisible(), cell.isStrikethrough()].map(Boolean);
          cells.push([cell.getChars(), flags, colour(cell, false), colour(cell, true)]);
        }
        lines.push(cells);
      }
      const is = terminal.modes;
      const modes = [buffer.type === 'alternate', is.insertMode, is.originMode, is.wraparoundMode,
        is.applicationCursorKeysMode, is.applicationKeypadMode];
      resolve(JSON.stringify({ lines, cursor: [buffer.cursorY, buffer.cursorX], modes }));
      terminal.dispose();
    });
  });
}

(async () => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    process.stdout.write((await show(line)) + '\n');
  }
})();
