// A SentencePiece vocabulary: text to pieces as the model learned them, and back.

const SPACE_MARK = "\u2581";
const REPLACEMENT = "\ufffd";
const UNKNOWN_PENALTY = 10;

class Tokenizer {
  constructor(described) {
    Object.assign(this, described);
    const { marks } = described.normalizer;
    // What texts are split into: a user-defined symbol is one private character meanwhile.
    this.ids = new Map();
    this.scores = [];
    let smallest = Infinity;
    this.longest = 1;
    described.pieces.forEach(([text, score, type], id) => {
      const isSymbol = type === "user_defined";
      if (type !== "normal" && !isSymbol) return;
      const split = isSymbol ? marks[text.replaceAll(SPACE_MARK, " ")] : text;
      this.ids.set(split, id);
      this.scores[id] = isSymbol ? 0 : score;
      smallest = Math.min(smallest, this.scores[id]);
      this.longest = Math.max(this.longest, [...split].length);
    });
    this.unknownScore = Math.fround(smallest - UNKNOWN_PENALTY);
    this.normalizer = new Normalizer(described);
  }

  encode(text) {
    const normal = this.normalizer.normalize(text);
    if (normal === "") return [];
    const marked = (this.has_outer_mark ? SPACE_MARK : "") + normal.replaceAll(" ", SPACE_MARK);
    const characters = [...marked];
    const pieces = this.kind === "bpe" ? this.merge(characters) : this.bestPath(characters);
    const ids = [];
    let wasUnknown = false;
    for (const piece of pieces) {
      const id = this.ids.get(piece);
      if (id !== undefined) ids.push(id);
      else if (this.byte_ids.length) ids.push(...this.bytesOf(piece));
      else if (!wasUnknown) ids.push(this.unknown_id); // A run of them is one.
      wasUnknown = id === undefined;
    }
    return ids;
  }

  bytesOf(piece) {
    return Array.from(new TextEncoder().encode(piece), (byte) => this.byte_ids[byte]);
  }

  // Byte-pair encoding: join the pair whose piece was learned first, from left to right.
  merge(characters) {
    const symbols = [...characters];
    for (;;) {
      let best = -1;
      let score = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const id = this.ids.get(symbols[i] + symbols[i + 1]);
        if (id !== undefined && this.scores[id] > score) [best, score] = [i, this.scores[id]];
      }
      if (best < 0) return symbols;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
    }
  }

  // Unigram: the pieces with the largest sum of log-probabilities. Sums have 32 bits, as in
  // SentencePiece, so that ties end alike.
  bestPath(characters) {
    const best = [{ score: 0, start: 0 }];
    for (let start = 0; start < characters.length; start++) {
      const offer = (end, score) => {
        const sum = Math.fround(score + best[start].score);
        if (!best[end] || sum > best[end].score) best[end] = { score: sum, start };
      };
      let piece = "";
      let isKnown = false;
      for (let end = start + 1; end <= Math.min(characters.length, start + this.longest); end++) {
        piece += characters[end - 1];
        const id = this.ids.get(piece);
        if (id === undefined) continue;
        offer(end, this.scores[id]);
        if (end === start + 1) isKnown = true;
      }
      if (!isKnown) offer(start + 1, this.unknownScore);
    }
    const pieces = [];
    for (let end = characters.length; end > 0; end = best[end].start) {
      pieces.unshift(characters.slice(best[end].start, end).join(""));
    }
    return pieces;
  }

  decode(ids) {
    const bytes = [];
    for (const id of ids) {
      if (id === this.end_id) break;
      const [text, , type] = this.pieces[id];
      if (type === "control") continue;
      const byte = this.byte_ids.indexOf(id);
      const surface = type === "unknown" ? "\u2047" : text.replaceAll(SPACE_MARK, " ");
      bytes.push(...(byte < 0 ? new TextEncoder().encode(surface) : [byte]));
    }
    return new TextDecoder().decode(Uint8Array.from(bytes)).replace(/^ +| +$/g, "");
  }

  // What a reader sees of a piece.
  label(id) {
    if (id === this.end_id) return say("(end)");
    if (id === this.start_id || id === this.pad_id) return say("(start)");
    if (id === this.unknown_id) return say("(unknown)");
    return this.pieces[id][0].replaceAll(SPACE_MARK, "\u00b7");
  }
}

// Brings a text into the form that the vocabulary was trained with.
class Normalizer {
  constructor(described) {
    Object.assign(this, described.normalizer);
    const normal = described.pieces.filter(([, , type]) => type === "normal");
    this.alphabet = new Set(normal.flatMap(([text]) => [...text]));
    this.alphabet.delete(SPACE_MARK);
    this.spaceSet = new Set(this.spaces);
    this.runsOfSpaces = new RegExp(`[${this.spaces}]+`, "gu");
    this.writesAll = described.byte_ids.length > 0;
    const symbols = Object.keys(this.marks).sort((a, b) => b.length - a.length);
    const escaped = symbols.map((text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    this.symbolPattern = symbols.length ? new RegExp(escaped.join("|"), "gu") : null;
    this.joinerPattern = this.idle_joiners && new RegExp(this.idle_joiners, "gu");
  }

  normalize(text) {
    let found = text.replace(/\p{Surrogate}/gu, REPLACEMENT);
    if (this.symbolPattern) {
      const taken = new Set(Object.values(this.marks));
      found = [...found].map((c) => (taken.has(c) ? REPLACEMENT : c)).join("");
      found = found.replace(this.symbolPattern, (symbol) => this.marks[symbol]);
    }
    if (this.joinerPattern) found = found.replace(this.joinerPattern, "$1");
    found = [...found].map((character) => this.replacement(character)).join("");
    if (this.form) found = found.normalize(this.form);
    return found.replace(this.runsOfSpaces, " ").replace(/^ +| +$/g, "");
  }

  has(character) {
    return this.alphabet.has(character) || (this.writesAll && !isAmong(character, this.unwritten));
  }

  replacement(character) {
    if (this.spaceSet.has(character) || this.has(character)) return character;
    if (isAmong(character, this.ignorable)) return "";
    if (!this.folds) return character;
    const folded = character.normalize("NFKC");
    const isSpelled = [...folded].every((c) => this.spaceSet.has(c) || this.has(c));
    return isSpelled ? folded : character;
  }
}

function isAmong(character, ranges) {
  const code = character.codePointAt(0);
  return ranges.some(([first, last]) => first <= code && code <= last);
}
