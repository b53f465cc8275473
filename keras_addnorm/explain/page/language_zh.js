// The words of the page in Simplified Chinese.

LANGUAGES.zh = {
  name: "中文",
  tag: "zh-Hans",
  joint: "",
  words: {
    // The page itself.
    "Add & Norm by hand": "手算 Add & Norm",
    "All translate English into German, and have two layers a side, the same data, recipe and number of updates; only the scheme differs.":
      "它们都把英语翻译成德语，编码器和解码器各两层，数据、训练配方和更新次数完全相同，只有方案不同。",
    Language: "语言",
    Guide: "导览",
    "A Transformer that runs in this page": "一个就在本页中运行的 Transformer",
    "Why add? Why norm? Type a sentence, follow it through every sublayer, and take one of the two away. The guide at the foot of the window leads to an answer.":
      "为什么要相加（Add）？为什么要归一化（Norm）？输入一个句子，跟着它走过每一个子层，再拿掉其中一个试试。窗口底部的导览会一步步给出答案。",
    "The sentence": "句子",
    "To translate": "要翻译的句子",
    "Sentences to begin with": "可以先试的句子",
    "The scheme": "方案",
    "A scheme says where add and norm stand around a sublayer. x goes in, F is the sublayer (an attention or a feed-forward), LN is a layer norm, y comes out. Each card is a model with another scheme, and what it makes of the sentence; choose one, and all figures follow.":
      "方案规定相加与归一化放在子层周围的什么位置。x 是输入，F 是子层（注意力或前馈网络），LN 是层归一化，y 是输出。每张卡片是一个采用不同方案的模型，以及它对这个句子的翻译；选中一张，下面所有的图都随之改变。",
    "Not drawn here: schemes of several streams or with a memory of depth, and Deep Delta, which has no fixed steps: how far x moves along F(x) is computed anew at each position.":
      "这里不画：有多条流的方案、记住各层深度的方案，以及 Deep Delta：它没有固定的步骤，x 沿 F(x) 移动多远，在每个位置上都要重新计算。",
    "The validation loss was measured on texts that they had not learned from: less is better.":
      "验证损失是在训练中没有见过的文本上测得的，越小越好。",
    "Words become vectors": "词变成向量",
    "The text is split into pieces (· begins a word; the number is the piece's place in the vocabulary). Choose one; all figures below show it. The decoder reads what it has said so far, and says the next piece.":
      "文本被切分成子词（· 表示一个词的开头，数字是该子词在词表中的编号）。选中一个，下面的图显示的都是它。解码器读入到目前为止已经说出的内容，再说出下一个子词。",
    "One sublayer, by hand": "手算一个子层",
    "Choose a sublayer on the map, or go through them with the arrows. The model is drawn from bottom to top: the grey band is as wide as the numbers of the stream are large, and the line in a box is as long as F(x) is large beside x (all of the box: twice as large). Point at a term of the formula to see what it is.":
      "在结构图上选一个子层，或用箭头逐个查看。模型从下往上画：灰色带越宽，残差流中的数值越大；方框里的线越长，F(x) 相对于 x 越大（占满方框表示两倍）。把光标指向公式中的某一项，可以看到它的含义。",
    "Map of the model": "模型结构图",
    "Where the heads look": "注意力头在看哪里",
    "What comes next": "接下来说什么",
    "The next piece": "下一个子词",
    "The beam": "束搜索",
    "From the first sublayer to the last": "从第一个子层到最后一个子层",
    "From left to right: the sublayers of the encoder, then those of the decoder. One line a scheme, the chosen one in colour; point at a name to light its line. Each point is a mean over all pieces of this sentence, or, for the recorded training, of some sentences that were watched while the models learned.":
      "从左到右：先是编码器的各子层，再是解码器的各子层。每个方案一条线，选中的用彩色；把光标指向名称，对应的线会突出显示。每个点是对这个句子所有子词取的平均；对于训练记录，则是对训练期间一直观察的若干句子取的平均。",
    "And in a deeper stack?": "如果堆得更深呢？",
    "The models above have few layers. Here are stacks of any depth, with random weights in place of learned ones: each sublayer F is a feed-forward whose F(h) is about as large as h. Nothing is learned; this is what a training begins with.":
      "上面的模型层数很少。这里可以看任意深度的堆叠，权重是随机的，没有经过学习：每个子层 F 都是一个前馈网络，F(h) 与 h 的大小大致相当。这里没有任何学习，它展示的是训练开始时的样子。",

    // Names.
    "Self-attention": "自注意力",
    "Cross-attention": "交叉注意力",
    "Feed-forward": "前馈网络",
    Encoder: "编码器",
    Decoder: "解码器",
    "(start)": "（开始）",
    "(end)": "（结束）",
    "(unknown)": "（未知）",
    "(nothing)": "（空）",
    none: "无",
    kept: "保留",
    finished: "已结束",
    dropped: "舍弃",
    "no norm": "无归一化",
    "no add": "无相加",

    // The sentence and the schemes.
    "It should say: {reference}": "参考译文：{reference}",
    "These models are small: they know sentences of the kind that they have learned, like those above. Change a name or a number in one of them; of other sentences they make nonsense.":
      "这些模型很小，只认识与训练数据同类的句子，例如上面这些。可以改动其中的人名或数字；换成别的句子，翻译出来的就是胡话。",
    "✓ what it should say": "✓ 与参考译文一致",
    "✗ not what it should say": "✗ 与参考译文不一致",
    "validation loss {loss}": "验证损失 {loss}",
    "Post-LN with a skip whose weight was measured before training.": "Post-LN，但跳跃连接的权重在训练前先行测定。",
    "Post-LN with a stronger skip: the old stream counts for more.": "Post-LN，但跳跃连接更强：原有的残差流所占比重更大。",
    "Post-LN whose deeper layers start with smaller weights.": "Post-LN，但越深的层初始权重越小。",
    "Norms inside the attention; the feed-forward's skip carries the normed stream.":
      "归一化放在注意力内部；前馈网络的跳跃连接传递归一化之后的残差流。",
    "Norms before the sublayer and after the sum, with a very strong skip.": "子层之前和求和之后都有归一化，跳跃连接非常强。",
    "Pre-LN with a small learned gain on each channel of the branch.": "Pre-LN，但分支的每个通道上有一个很小的可学习增益。",
    "Pre-LN whose deeper sublayers read a smaller stream.": "Pre-LN，但越深的子层读到的残差流越小。",
    "Post-LN in the first layers, Pre-LN in the others.": "前几层用 Post-LN，其余各层用 Pre-LN。",
    "Add without norm: the stream may grow as it likes.": "只相加，不归一化：残差流可以任意增大。",
    "Norm without add: each sublayer has to hand on all that is known.": "只归一化，不相加：每个子层都必须自己把已知的一切传下去。",
    "Pre-LN that adds only what is at a right angle to the stream.": "Pre-LN，但只加上与残差流正交的部分。",
    "Neither add nor norm: sublayers in a row.": "既不相加也不归一化：子层首尾相接。",
    "Add, then norm, as in the Transformer of 2017: the stream passes through every norm.":
      "先相加，再归一化，即 2017 年的 Transformer：残差流要穿过每一个归一化。",
    "Norm only what the sublayer reads: from bottom to top the stream meets only additions.":
      "只对子层读入的内容归一化：残差流从下到上只遇到加法。",
    "Norm only what the sublayer reads: from bottom to top the stream meets only additions. The stream is scaled down by a learned gate.":
      "只对子层读入的内容归一化：残差流从下到上只遇到加法。可学习的门控把残差流缩小。",
    "Norm only what the sublayer reads: from bottom to top the stream meets only additions. Early in training, branches come in by layer.":
      "只对子层读入的内容归一化：残差流从下到上只遇到加法。训练初期，各分支按层的次序逐渐加入。",
    "A norm on what the sublayer computes, none on what it reads.": "对子层的输出归一化，对它的输入不归一化。",
    "No norm: a learned factor on the branch, zero at first.": "没有归一化：分支乘以一个可学习的系数，初值为零。",
    "Norms before and after the sublayer: what is added has one size.": "子层前后都有归一化：加上去的内容大小一致。",
    "Pre-LN with one more norm inside the sublayer.": "Pre-LN，子层内部再加一个归一化。",
    "No norm: initial weights small enough to do without.": "没有归一化：初始权重足够小，因而不需要它。",

    // Pieces and vectors.
    "The encoder reads": "编码器读入",
    "The decoder has said": "解码器已经说出",
    "{title}: pieces": "{title}：子词",
    "piece number {id} of the vocabulary, position {index}": "词表中第 {id} 号子词，位置 {index}",
    Embedding: "词嵌入",
    "row {id} of the table, × {scale}": "嵌入表第 {id} 行，× {scale}",
    Position: "位置编码",
    "pattern of place {position}, from 0": "位置 {position} 的编码（从 0 数起）",
    "their sum: the stream begins": "二者之和：残差流的起点",
    "the stream begins": "残差流的起点",
    "The piece {piece} as {count} numbers: bars up are positive, bars down negative. Point at a bar, or use the arrow keys, to read its number. rms, the root mean square, is the size of a typical one.":
      "子词 {piece} 表示成 {count} 个数：向上的条为正，向下的条为负。把光标指向某一条，或用方向键，可以读出数值。rms 是均方根，即一个典型数值的大小。",
    "{name} of {piece}": "{piece} 的{name}",
    "{label}: {row} Arrow keys go through them.": "{label}：{row}用方向键逐个查看。",
    "{count} numbers from {low} to {high}, root mean square {size}.": "{count} 个数，从 {low} 到 {high}，均方根 {size}。",

    // The map.
    "embedding + position": "词嵌入 + 位置编码",
    "layer {number}": "第 {number} 层",
    "{side}, layer {layer}, {sublayer}: F over x {ratio}, stream {size}":
      "{side}第 {layer} 层，{sublayer}：F 与 x 之比 {ratio}，残差流 {size}",
    "final norm": "末端归一化",
    "to the decoder": "送往解码器",
    "next piece": "下一个子词",
    "{side}, from the embedding up": "{side}，从词嵌入往上",

    // One sublayer.
    "{side} · layer {layer}": "{side} · 第 {layer} 层",
    "{sublayer} and its Add & Norm": "{sublayer}及其 Add & Norm",
    "at the piece {piece}": "所看的子词：{piece}",
    "The previous sublayer": "上一个子层",
    "The next sublayer": "下一个子层",
    "There is no skip: what F does not pass on is gone.": "这里没有跳跃连接：F 没有传下去的信息就丢失了。",
    "Inside F": "F 的内部",
    "{count} hidden units, {active} above zero": "{count} 个隐藏单元，其中 {active} 个大于零",
    "Hidden units of the feed-forward": "前馈网络的隐藏单元",
    channel: "通道",
    "All numbers of this sublayer": "这个子层的全部数值",
    "All numbers": "全部数值",
    "rms: root mean square, the size of a typical number. ‖F‖/‖x‖: the length of F(x) over that of x. μ and σ: mean and standard deviation of what the norm reads. cos(x, y): 1 if y points where x points, 0 if they have nothing in common.":
      "rms：均方根，即一个典型数值的大小。‖F‖/‖x‖：F(x) 的长度与 x 的长度之比。μ 和 σ：归一化所读入内容的均值和标准差。cos(x, y)：y 与 x 同方向时为 1，毫无共同之处时为 0。",
    "By hand": "手算",
    number: "第几个数",
    "number {number} of {count}": "{count} 个数中的第 {number} 个",
    "{number} of {count}": "{number} / {count}",
    "{result}, from all numbers of this piece": "{result}，由这个子词的全部数值算出",
    "{result}, from all numbers of all pieces that it looks at": "{result}，由它所看的所有子词的全部数值算出",
    "Formula: {formula}": "公式：{formula}",
    Norm: "归一化",
    Add: "相加",
    Stream: "残差流",
    Turn: "转向",
    "× gate": "× 门控",
    "Layer norm: of the numbers of this one piece, take off their mean μ and divide by √(σ² + ε), where σ is their standard deviation and ε is tiny; then times γ, plus β, both learned. (Thin lines: before the norm.) It looks at no other piece and no other sentence, so it does the same in training and in use.":
      "层归一化：对这一个子词的各个数，减去它们的均值 μ，再除以 √(σ² + ε)，其中 σ 是标准差，ε 很小；然后乘以 γ，加上 β，二者都是学出来的。（细线：归一化之前。）它不看别的子词，也不看别的句子，所以训练时和使用时的计算完全一样。",
    "RMS norm: divide by the root mean square of the numbers of this piece; then times a learned gain. No mean is taken off.":
      "RMS 归一化：除以这个子词各个数的均方根，再乘以可学习的增益。不减均值。",
    "ScaleNorm: bring this piece's vector to one learned length.": "ScaleNorm：把这个子词的向量缩放到同一个可学习的长度。",
    "Layer norm as some tutorials write it: divided by (σ + ε), with the unbiased σ. Nearly the same as √(σ² + ε) for wide vectors.":
      "某些教程中的层归一化写法：除以 (σ + ε)，σ 取无偏估计。对于较宽的向量，与 √(σ² + ε) 几乎相同。",
    "Dynamic tanh: squash each number by itself, instead of a norm.": "Dynamic tanh：逐个压缩每个数，用来代替归一化。",
    "The identity in the place of a norm.": "归一化的位置上是恒等映射。",
    "It looks at the other pieces and brings what they say.": "它查看其他子词，取回它们的信息。",
    "It looks at the encoder's output: at the words that are translated.": "它查看编码器的输出，也就是被翻译的词。",
    "It looks at this piece alone: a first matrix makes the row wider, an activation acts on each number, a second matrix makes it narrow again.":
      "它只看这一个子词：第一个矩阵把这一行变宽，激活函数作用于每个数，第二个矩阵再把它变窄。",
    "F, the sublayer. {does} With a skip, F(x) is not a new vector: it is a difference, what has to change in x.":
      "F，即子层。{does}有了跳跃连接，F(x) 就不是一个新向量，而是一个差值：x 中需要改变的部分。",
    "A fixed factor of {number}: deeper layers read a smaller stream.": "固定系数 {number}：越深的层读到的残差流越小。",
    "α = {number}: the skip counts for more than the branch, so that a deep stack changes slowly. The number follows from the depth.":
      "α = {number}：跳跃连接的比重大于分支，使得深的堆叠变化缓慢。这个数由深度决定。",
    "from {low} to {high}": "从 {low} 到 {high}",
    "A learned factor on the skip, now {now}. It says how much of the old stream stays.":
      "跳跃连接上的可学习系数，现在为 {now}。它决定原有的残差流保留多少。",
    "A learned factor on the branch, now {now}. Near zero the layer is the identity: F need not learn to do nothing.":
      "分支上的可学习系数，现在为 {now}。接近零时，这一层就是恒等映射：F 不必去学习“什么都不做”。",
    "A learned gate scales the stream by {kept}; gradients pass as if it were not there.":
      "可学习的门控把残差流乘以 {kept}；梯度通过时就像它不存在一样。",
    "Add: the normed stream and what the sublayer says.": "相加：归一化之后的残差流，加上子层的输出。",
    "Add: grey is x, colour what F(x) adds or takes, the thick line their sum. What x knew is kept, unless F takes it away. And on the way back, ∂(x + F(x))/∂x = 1 + ∂F/∂x: through the 1, the gradient passes the sum undiminished. Adding, not concatenating: the row does not get wider.":
      "相加：灰色是 x，彩色是 F(x) 增加或减去的部分，粗线是二者之和。x 中的信息得以保留，除非 F 把它减掉。反向传播时 ∂(x + F(x))/∂x = 1 + ∂F/∂x：通过其中的 1，梯度可以毫无衰减地穿过加法。是相加而不是拼接：这一行不会变宽。",
    "Only the part of F(x) at a right angle to x is kept: it can turn the stream, never shorten it.":
      "只保留 F(x) 中与 x 正交的部分：它可以改变残差流的方向，但不会让它变短。",
    "x, the residual stream: the numbers that stand for this piece here. With the add, no sublayer computes them anew; each only adds to them.":
      "x，即残差流：在这里代表这个子词的那些数。有了相加，子层都不会重新计算它们，只是往上加。",

    // Attention.
    "The feed-forward looks at no other piece. Choose an attention on the map to see where its heads look.":
      "前馈网络不看别的子词。在结构图上选一个注意力子层，就能看到它的各个头在看哪里。",
    "{side}, layer {layer}, {sublayer}. Each row is a piece that looks, each column one that is looked at; the stronger the colour, the larger the weight, and the weights of a row add up to 1.":
      "{side}第 {layer} 层，{sublayer}。每一行是一个在看的子词，每一列是一个被看的子词；颜色越深，权重越大，每行权重之和为 1。",
    "What comes later cannot be looked at: it has not been said yet.": "后面的内容不能看：它们还没有说出来。",
    "Point at a cell, or use the arrow keys, to read it. Nothing makes heads learn different things, and a large weight is no proof that a piece matters.":
      "把光标指向某一格，或用方向键，可以读出数值。没有什么机制强制各个头学到不同的东西；权重大也不能证明这个子词重要。",
    "Head {number}": "头 {number}",
    "{query} looks at {key}: {weight}": "{query} 看 {key}：{weight}",
    "{query} looks most at {key}, {weight}.": "{query} 看得最多的是 {key}，{weight}。",

    // The next piece and the beam.
    "What comes after {piece}? The probability of each piece; the coloured one was taken:":
      "{piece} 之后是什么？各子词的概率如下，彩色的是实际选中的：",
    "One piece less": "少一个子词",
    "One piece more": "多一个子词",
    "The ten most probable pieces": "概率最高的十个子词",
    Beams: "束宽",
    "Greedy search: at each step the most probable piece is taken.": "贪心搜索：每一步都取概率最高的子词。",
    "Beam search follows {count} beginnings of the translation at once. At each step it looks at the {twice} best continuations; the {count} best that do not end go on, pale ones are given up.":
      "束搜索同时跟踪译文的 {count} 个开头。每一步查看最好的 {twice} 个延续，其中尚未结束的最好的 {count} 个继续，浅色的被舍弃。",
    "The number in a box is the logarithm of the probability of all up to there: 0 is certain, −0.7 one in two, −2.3 one in ten.":
      "方框里的数是到该处为止整个序列概率的对数：0 表示必然，−0.7 约为二分之一，−2.3 约为十分之一。",
    "The finished translations, by this logarithm:": "已结束的译文，按这个对数排序：",
    "The finished translations, by their score: this logarithm, divided by a power ({power}) of {divisor} for n pieces, so that short ones have no advantage.":
      "已结束的译文，按得分排序：得分是这个对数除以 {divisor} 的 {power} 次幂（n 为子词数），这样短译文不会占便宜。",
    "{piece}: log-probability {own}, in all {sum}, {state}": "{piece}：对数概率 {own}，累计 {sum}，{state}",
    "Tree of the beam, {count} steps.": "束搜索的树，共 {count} 步。",
    "Step {number}: {pieces}.": "第 {number} 步：{pieces}。",

    // By depth.
    "The lines": "各条线",
    "What is measured": "测量对象",
    "this sentence, trained model": "这个句子，训练好的模型",
    "the recorded training": "训练记录",
    Update: "更新",
    "update {number}": "第 {number} 次更新",
    "of {count}": "/ {count}",
    "Only a recorded training has gradients.": "只有训练记录才有梯度。",
    "Nothing is recorded at this update.": "这次更新没有记录。",
    "Size of the stream": "残差流的大小",
    "root mean square of its numbers, after each sublayer": "每个子层之后各数值的均方根",
    "length of what a sublayer computes, over that of x": "子层输出的长度与 x 的长度之比",
    "1: y points where x points; 0: nothing in common": "1：y 与 x 同方向；0：毫无共同之处",
    "Gradient at x": "x 处的梯度",
    "length of the loss's gradient at the stream": "损失对残差流的梯度的长度",
    "length of the loss's gradient at the stream, at the end of the training": "训练结束时损失对残差流的梯度的长度",
    "{unit}; logarithmic": "{unit}；对数刻度",
    "encoder →": "编码器 →",
    "decoder →": "解码器 →",
    "{title} by depth.": "{title}随深度的变化。",
    "{name}: from {first} to {last}, largest {largest}.": "{name}：从 {first} 到 {last}，最大 {largest}。",
    "What is left of x": "x 还剩下多少",
    "cosine between the stream here and x at the bottom: 1 all, 0 nothing": "此处残差流与最底部 x 的余弦：1 为全部，0 为没有",
    Sublayers: "子层数",
    "{count} sublayers": "{count} 个子层",
    "{name}: {value} after {count} sublayers.": "{name}：经过 {count} 个子层后为 {value}。",
    "{title} by depth, random weights.": "{title}随深度的变化，随机权重。",
    "from the bottom to sublayer {depth} →": "从底部到第 {depth} 个子层 →",

    // The guide.
    "Guide me": "开始导览",
    Back: "上一步",
    Next: "下一步",
    Done: "完成",
    "From the start": "从头开始",
    "Go to what is shown": "转到所示内容",
    "Close the guide": "关闭导览",
    "The question": "问题",
    "A Transformer is a stack of sublayers, attentions and feed-forwards. Around each of them stand two small operations, drawn as one box: Add & Norm. Why add? Why norm?":
      "Transformer 由许多子层堆叠而成：注意力子层和前馈子层。每个子层周围都有两个小操作，通常画成一个方框：Add & Norm（相加与归一化）。为什么要相加？为什么要归一化？",
    "Here run {count} small models, each with a choice of its own.": "这里运行着 {count} 个小模型，各有各的做法。",
    "Here runs a small model.": "这里运行着一个小模型。",
    "The guide goes to an answer step by step; its numbers are computed in this page, or were recorded while the models learned.":
      "导览会一步步走向答案；其中的数字是在本页中算出来的，或是在模型学习时记录下来的。",
    "A piece is a vector, and the vector is a stream": "子词是向量，向量就是残差流",
    "The sentence is split into pieces: words, or parts of words. Each becomes a row of {count} numbers: its embedding, plus a pattern that says at which place it stands.":
      "句子被切分成子词，也就是词或词的一部分。每个子词变成一行 {count} 个数：它的词嵌入，再加上表示所在位置的编码。",
    "This row is x, the residual stream. It runs from the bottom of the model to the top, and every sublayer reads it and writes to it. Choose a piece and look at it.":
      "这一行就是 x，即残差流。它从模型底部流到顶部，每个子层都读它，也往里写。选一个子词看一看。",
    "F(x) is a difference": "F(x) 是一个差值",
    "The sublayer reads x and computes F(x), the coloured bars. That is not a new vector: it is what has to change in x. If x is “bank”, half money and half river, and the sentence speaks of withdrawing money, F(x) is a little more money and a little less river.":
      "子层读入 x，算出 F(x)，即彩色的条。它不是一个新向量，而是 x 中需要改变的部分。假如 x 是英语的“bank”，一半是“银行”，一半是“河岸”，而句子说的是取钱，那么 F(x) 就是多一点“银行”，少一点“河岸”。",
    "Here F(x) is {share} times as long as x.": "这里 F(x) 的长度是 x 的 {share} 倍。",
    "Then both are added. Grey is x, colour is what F(x) adds or takes away, the thick line is the sum. A sublayer with nothing to say has only to make F(x) zero: x goes on as it was.":
      "然后把二者相加。灰色是 x，彩色是 F(x) 增加或减去的部分，粗线是和。没什么可说的子层只要让 F(x) 为零即可，x 便原样通过。",
    "The result y still points where x pointed: cos(x, y) is {kept}, where 1 is the same direction and 0 is nothing in common.":
      "结果 y 仍然大致指向 x 的方向：cos(x, y) 为 {kept}，其中 1 表示方向相同，0 表示毫无共同之处。",
    "Take the add away": "拿掉相加",
    "The same sublayers and the same norm, but y has no x in it. Read what this model makes of the sentence.":
      "子层和归一化都不变，但 y 里没有 x。看看这个模型把句子翻译成了什么。",
    "Its loss on new texts is {loss}; with the add it is {loss2}.": "它在新文本上的损失是 {loss}；有相加时是 {loss2}。",
    "There are two reasons.": "原因有两个。",
    "First reason: what came in is lost": "原因之一：输入的信息丢失了",
    "cos(x, y) says how much of the direction of x is left after a sublayer. In the mean it is {kept} without the add, and {kept2} with it.":
      "cos(x, y) 表示经过一个子层后，x 的方向还剩多少。平均而言，没有相加时是 {kept}，有相加时是 {kept2}。",
    "Without the add, a sublayer that mixes in what other words say, or looks something up, has to write down again all that was known. What it does not hand on is gone for all that follow: there is no way past it.":
      "没有相加，一个子层在混入其他词的信息或查找某些内容的同时，还必须把已知的一切重新写一遍。它没有传下去的东西，后面所有的层都再也得不到：没有别的路可以绕过它。",
    "Second reason: the gradient is lost": "原因之二：梯度丢失了",
    "A model learns from gradients, and they run back from the top to the bottom. ∂(x + F(x))/∂x = 1 + ∂F/∂x: through the 1, they pass an add undiminished.":
      "模型靠梯度学习，梯度从顶部往底部回传。∂(x + F(x))/∂x = 1 + ∂F/∂x：通过其中的 1，梯度毫无衰减地穿过加法。",
    "This is before the first update. From the top of the decoder to its bottom, the gradient falls from {gradient} to {gradient2} without the add; with it, from {gradient3} to {gradient4}.":
      "这是第一次更新之前的情形。从解码器顶部到底部，没有相加时梯度从 {gradient} 降到 {gradient2}；有相加时从 {gradient3} 变为 {gradient4}。",
    "What receives no gradient cannot learn.": "得不到梯度的部分无法学习。",
    "Take the norm away": "拿掉归一化",
    "So let us add, and do nothing else: y = x + F(x). If x and F(x) have nothing to do with one another their variances add, Var(x + F) = Var(x) + Var(F): the stream grows with every sublayer.":
      "那么就只相加，别的什么都不做：y = x + F(x)。如果 x 与 F(x) 互不相关，方差就会相加，Var(x + F) = Var(x) + Var(F)：残差流每过一个子层就增大一些。",
    "Before the first update, its size after the decoder's last sublayer is {size}; with a norm after each sum it is {size2}.":
      "第一次更新之前，解码器最后一个子层之后残差流的大小是 {size}；如果每次求和之后都归一化，则是 {size2}。",
    "Is that bad?": "这有什么不好？",
    "With so few layers the model still learns to translate. But sublayers that read larger numbers have larger gradients below them, and one learning rate has to suit all.":
      "层数这么少时，模型仍然能学会翻译。但读入的数值越大，其下方的梯度也越大，而所有层只能用同一个学习率。",
    "At the bottom of the encoder the first gradient is {gradient}, with norms {gradient2}.":
      "在编码器底部，最初的梯度是 {gradient}，有归一化时是 {gradient2}。",
    "In the end its loss is {loss}; with norms it is {loss2}.": "最终它的损失是 {loss}；有归一化时是 {loss2}。",
    "Next: what would happen if there were more layers.": "接下来看：如果层数更多会怎样。",
    Deeper: "更深",
    "A thought experiment with random weights: pull the slider to more sublayers. Without a norm the stream doubles with every two of them. Without the add, hardly anything of x is left after the first.":
      "用随机权重做一个思想实验：把滑块拉向更多的子层。没有归一化，每过两个子层残差流就翻一倍。没有相加，过了第一个子层，x 就所剩无几。",
    "With both, the size stays in hand and x fades step by step: fast where the norm scales down the sum, slowly where it stands before the sublayer.":
      "两者都有时，大小得到控制，x 逐步淡出：归一化放在求和之后把和缩小时，淡出得快；放在子层之前时，淡出得慢。",
    "The norm brings the numbers of one piece back to one size: take off their mean μ, divide by √(σ² + ε), almost their standard deviation, then times γ, plus β, which are learned. Below the bars, one number is worked out by hand.":
      "归一化把一个子词的各个数恢复到同样的大小：减去均值 μ，除以 √(σ² + ε)（几乎就是标准差），再乘以 γ，加上 β，二者都是学出来的。条形图下方手算了其中一个数。",
    "It needs no other piece and no other sentence, unlike batch norm.": "与批归一化不同，它不需要别的子词，也不需要别的句子。",
    "Where does the norm stand?": "归一化放在哪里？",
    "Post-LN, LN(x + F(x)): after the sum. Every sum is brought back to one size, up to the learned γ, but x and every gradient have to pass every norm, so deep stacks need a warm-up: small learning rates at first.":
      "Post-LN，LN(x + F(x))：放在求和之后。每个和都恢复到同样的大小（只差学到的 γ），但 x 和所有梯度都要穿过每一个归一化，所以深的堆叠需要预热：开始时用小学习率。",
    "Here the decoder's stream ends at {growth}; before the training, when γ was 1, it ended at 1.":
      "这里解码器的残差流最后是 {growth}；训练之前 γ 为 1 时是 1。",
    "Pre-LN, x + F(LN(x)): before the sublayer. From bottom to top there are only additions.":
      "Pre-LN，x + F(LN(x))：放在子层之前。从下到上只有加法。",
    "Its stream may grow, here from {growth} to {growth2} in the decoder, so one more norm stands at the end.":
      "它的残差流可能增大，这里在解码器中从 {growth} 增到 {growth2}，所以末端还要再放一个归一化。",
    "Watch it learn": "看它学习",
    "Pull the slider from the first update to the last, and choose schemes by their names. Watch the gradient without the add, and how the size of the stream grows without a norm and changes by a small factor with one.":
      "把滑块从第一次更新拉到最后一次，按名称选择方案。注意没有相加时的梯度，以及残差流的大小：没有归一化时不断增长，有归一化时只变化一个不大的倍数。",
    "The answer": "答案",
    "Add, because then a sublayer has to say only what changes: what x knew stays, and gradients reach every layer.":
      "要相加，因为这样子层只需说出改变了什么：x 中的信息保留下来，梯度也能到达每一层。",
    "(Loss without: {loss}.)": "（没有相加时的损失：{loss}。）",
    "Norm, because what is added grows: with it every sublayer reads numbers of one size, however many stand below.":
      "要归一化，因为不断相加会越加越大：有了它，无论下面有多少子层，每个子层读到的数值大小都一致。",
    "(Loss without: {loss}. With both: {loss2}.)": "（没有归一化时的损失：{loss}。两者都有时：{loss2}。）",
    "Where the norm stands is a choice between a norm on the way of the stream and a free way from bottom to top; the other schemes try to have both.":
      "归一化放在哪里，是一个取舍：让残差流一路上都被归一化，还是让它从下到上畅通无阻；其他方案则试图两者兼得。",
    "Now choose another scheme, and change a name or a number of the sentence. The same step by step in Python: the notebooks “Add & Norm from scratch” and “Why norm”.":
      "现在换一个方案，再改改句子里的人名或数字。同样的内容用 Python 一步步来做，见 notebook《从零实现 Add & Norm》和“Why norm”。",
  },
};
