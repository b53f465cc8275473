// The encoder-decoder Transformer: each sublayer follows the steps that its scheme is described by.

class Model {
  constructor(described, tokenizers) {
    Object.assign(this, described);
    this.source = tokenizers[described.source_tokenizer];
    this.target = tokenizers[described.target_tokenizer];
    const arrays = readWeights(described.weights);
    for (const part of ["encoder", "decoder", "logits"]) this[part] = withArrays(described[part], arrays);
  }

  // The ids that the encoder reads, cut where the model ends.
  sourceIds(text) {
    const around = this.before_source.length + this.behind_source.length;
    const ids = this.source.encode(text).slice(0, this.max_length - around);
    return [...this.before_source, ...ids, ...this.behind_source];
  }

  // Encodes ids: { memory, trace }.
  encode(ids) {
    const trace = new Trace(this.encoder.stack);
    const x = ids.map((id, position) => trace.embed(embed(this.encoder.embedding, id, position)));
    const first = { values: null };
    const memory = runStack(this.encoder.stack, x, trace, (described, h) => {
      const keys = h.map((row) => keyOf(described, row));
      const values = withFirst(described, first, h.map((row) => valueOf(described, row)));
      return h.map((row, position) => attend(described, row, keys, values, { position }));
    });
    return { memory, trace };
  }

  // Reads a target from the beginning: the logits behind each token, and a trace.
  decode(ids, memory) {
    const decoder = new Decoder(this, memory, new Trace(this.decoder.stack));
    const logits = ids.map((id) => decoder.step(id));
    return { logits, trace: decoder.trace };
  }
}

// A decoder that has read some tokens. Keys and values of the past are kept, never changed.
class Decoder {
  constructor(model, memory, trace = null) {
    this.model = model;
    this.trace = trace;
    this.length = 0;
    const attentions = model.decoder.stack.sublayers.filter((each) => each.kind !== "feed_forward");
    this.past = new Map(
      attentions.map(({ name, kind, sublayer }) => {
        const rows = kind === "cross_attention" ? memory : [];
        return [
          name,
          {
            keys: rows.map((row) => keyOf(sublayer, row)),
            values: rows.map((row) => valueOf(sublayer, row)),
          },
        ];
      }),
    );
  }

  copy() {
    const other = Object.create(Decoder.prototype);
    Object.assign(other, this);
    other.past = new Map(this.past);
    return other;
  }

  step(id) {
    const { decoder, logits } = this.model;
    const position = this.length;
    const embedded = embed(decoder.embedding, id, position);
    const x = [this.trace ? this.trace.embed(embedded) : embedded.sum];
    const first = { values: null };
    const rows = runStack(decoder.stack, x, this.trace, (described, [h], { name, kind }) => {
      const past = this.past.get(name);
      if (kind === "cross_attention") return [attend(described, h, past.keys, past.values, {})];
      const keys = [...past.keys, keyOf(described, h)];
      const values = [...past.values, ...withFirst(described, first, [valueOf(described, h)])];
      this.past.set(name, { keys, values });
      return [attend(described, h, keys, values, { position })];
    });
    this.length += 1;
    if (logits.projection) return project(rows[0], logits.projection.kernel, logits.projection.bias);
    return projectOnTable(rows[0], logits.table, logits.bias);
  }
}

// What was computed, by sublayer and tensor: a row a position.
class Trace {
  constructor(stack) {
    this.embeddings = [];
    this.output = [];
    this.sublayers = stack.sublayers.map((sublayer) => ({
      ...sublayer,
      tensors: {},
      attention: [],
      hidden: [],
    }));
  }

  embed(parts) {
    this.embeddings.push(parts);
    return parts.sum;
  }
}

// Puts arrays in the place of their names, wherever a description has one.
function withArrays(described, arrays) {
  if (typeof described === "string") return arrays.get(described) ?? described;
  if (Array.isArray(described)) return described.map((each) => withArrays(each, arrays));
  if (described === null || typeof described !== "object") return described;
  return Object.fromEntries(
    Object.entries(described).map(([key, value]) => [
      key,
      key === "name" ? value : withArrays(value, arrays),
    ]),
  );
}

function embed(side, id, position) {
  const token = times(rowOf(side.table, id), side.scale);
  const where = side.positions && positionRow(side.positions, position, token.length);
  const sum = where ? plus(token, where) : token;
  return { token, position: where, sum: side.norm ? normalize(sum, side.norm) : sum };
}

function positionRow(positions, position, width) {
  if (positions.kind === "learned") return rowOf(positions.table, position);
  const row = new Float32Array(width);
  const pairs = positions.frequencies.length;
  positions.frequencies.forEach((frequency, i) => {
    const angle = (position + positions.offset) * frequency;
    const [sine, cosine] = positions.layout === "halves" ? [i, pairs + i] : [2 * i, 2 * i + 1];
    row[sine] = Math.sin(angle);
    if (cosine < width) row[cosine] = Math.cos(angle);
  });
  return row;
}

// Runs rows through a stack. `attention` gives { context, weights } for each row.
function runStack(stack, rows, trace, attention) {
  let x = stack.embedding_norm ? rows.map((row) => normalize(row, stack.embedding_norm)) : rows;
  stack.sublayers.forEach((described, index) => {
    const record = trace && trace.sublayers[index];
    const apply = (h) => applySublayer(described, h, record, attention);
    const tensors = runSteps(described, x, apply);
    if (record) keepTensors(record.tensors, tensors);
    x = tensors.y;
  });
  if (stack.final_norm) x = x.map((row) => normalize(row, stack.final_norm));
  if (trace) trace.output.push(...x);
  return x;
}

function keepTensors(kept, tensors) {
  for (const [name, rows] of Object.entries(tensors)) (kept[name] ??= []).push(...rows);
}

// The steps of an Add & Norm: every tensor that they make, by its name.
function runSteps({ steps, parts }, x, sublayer) {
  const tensors = { x };
  for (const step of steps) {
    const [first, second] = step.reads.map((name) => tensors[name]);
    const part = parts[step.weight];
    tensors[step.makes] = {
      norm: () => first.map((row) => normalize(row, part)),
      sublayer: () => sublayer(first),
      scale: () => first.map((row) => times(row, step.number ?? factorOf(part))),
      gate: () => first.map((row) => times(row, 1 - silu(part.data[0]))),
      add: () => first.map((row, i) => plus(row, second[i])),
      remove_parallel: () => first.map((row, i) => withoutPart(row, second[i], step.number)),
    }[step.operation]();
  }
  return tensors;
}

function factorOf({ shape, data }) {
  return shape.length ? data : data[0];
}

// A row without its part along x.
function withoutPart(row, x, epsilon) {
  const share = dot(x, row) / (dot(x, x) + epsilon);
  return row.map((value, i) => value - share * x[i]);
}

function applySublayer(described, h, record, attention) {
  if (described.kind === "feed_forward") {
    return h.map((row) => {
      const hidden = hiddenOf(described.sublayer, row);
      if (record) record.hidden.push(hidden);
      return project(hidden, described.sublayer.output.kernel, described.sublayer.output.bias);
    });
  }
  return attention(described.sublayer, h, described).map(({ context, weights }) => {
    if (record) record.attention.push(weights);
    const { inner_norm: norm, output } = described.sublayer;
    return project(norm ? normalize(context, norm) : context, output.kernel, output.bias);
  });
}

function hiddenOf(described, row) {
  const { intermediate, gate, inner_norm: norm } = described;
  const activation = ACTIVATIONS[described.activation];
  let hidden = project(row, intermediate.kernel, intermediate.bias);
  if (gate) {
    const opened = project(row, gate.kernel, gate.bias).map(activation);
    hidden = times(hidden, opened);
  } else {
    hidden = hidden.map(activation);
  }
  return norm ? normalize(hidden, norm) : hidden;
}

function inHeads(row, count, width, norm) {
  return Array.from({ length: count }, (_, head) => {
    const part = row.slice(head * width, (head + 1) * width);
    return norm ? normalize(part, norm) : part;
  });
}

function keyOf(described, row) {
  const { key, num_groups: groups, head_dim: width, key_norm: norm } = described;
  return inHeads(project(row, key.kernel, key.bias), groups, width, norm);
}

function valueOf(described, row) {
  const { value, num_groups: groups, head_dim: width, value_norm: norm } = described;
  return inHeads(project(row, value.kernel, value.bias), groups, width, norm);
}

// With a value residual, the means of the values and those of the first layer of the stack, which
// the first layer leaves in `first`.
function withFirst(described, first, values) {
  if (!described.value_residual) return values;
  if (!first.values) return (first.values = values);
  const mean = (ours, theirs) => ours.map((value, i) => (value + theirs[i]) / 2);
  return values.map((heads, row) => heads.map((head, g) => mean(head, first.values[row][g])));
}

// One query's attention in each head: softmax(q k / sqrt(K)) v. Without a position it looks at a
// memory, which has no window.
function attend(described, row, keys, values, { position }) {
  const { query, num_heads: heads, num_groups: groups, head_dim: width } = described;
  const queries = inHeads(project(row, query.kernel, query.bias), heads, width, described.query_norm);
  const context = new Float32Array(heads * width);
  const weights = queries.map((q, head) => {
    const group = Math.floor((head * groups) / heads);
    const scaled = times(q, numberOf(described.scale, head));
    const logits = keys.map((key, at) => {
      const isFar = described.window && position !== undefined && Math.abs(at - position) >= described.window;
      if (isFar) return -Infinity;
      const logit = dot(scaled, key[group]);
      return described.soft_cap ? described.soft_cap * Math.tanh(logit / described.soft_cap) : logit;
    });
    const sink = numberOf(described.sink, head);
    const shares = softmax(sink === null ? logits : [...logits, sink]).slice(0, keys.length);
    shares.forEach((share, at) => {
      const value = values[at][group];
      for (let i = 0; i < width; i++) context[head * width + i] += share * value[i];
    });
    return shares;
  });
  return { context, weights };
}

// A fixed number, or that of a head.
function numberOf(choice, head) {
  return choice === null || typeof choice === "number" ? choice : choice.data[head];
}
