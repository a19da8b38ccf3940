"""Small models with bounded dimensions, one op or pattern each."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, numpy_helper, parser

DIMS = {"b": (1, 3), "s": (1, 6), "t": (0, 4)}
SIZES = {"b": 2, "s": 4, "t": 3}
INPUTS = "float[b, s, 4] x, float[b, t, 4] z, int64[b, s] i"
CONSTANTS = """
  int64[1] m1={-1}, int64[1] m2={-2}, int64[1] n0={0}, int64[1] n1={1}, int64[1] n2={2}, int64 c0={0}, int64 c1={1},
  int64 c2={2}, int64[2] ax01={0,1}, int64[1] big={9223372036854775807}, int64[1] neg={-9223372036854775807},
  int64[3] r321={1,2,1}, int64[3] sh24={0,-1,2}, int64[1] e4={4}, float half={0.5}, float[1] one={1.0},
  int64[2] flat={-1,4}, int64[6] pads={0,1,0,0,2,0}, int64[4] idxs={0,-1,-2,1}, int64 k3={3}, int64[1] k1={1},
  int64[4] idxs0={0,-1,0,-2}, float[1] zero={0.0}, float[2] onoff={2.0,5.0}, float[4] g4={1,2,3,4}, int64[1] e1={3},
  int64 cm4={-4}, int64 c3={3}, int64 cm1={-1}, int64 c20={20}, int64[6] padsr={0,1,0,0,1,0}, int64[6] pads1={0,1,0,0,1,0},
  int64[1] six={6}, float[4] sc={1,1,2,2}, float[4] sch={1,1,0.5,1}, int64[4] mul2={1,1,2,3}, uint8 u8={128},
  uint8[1, 1, 2, 2] k8={1, 2, 3, 4}, float[2] ones2={1.0, 1.0}, int64[1, 1] ind1={0}, int64[2] sh34={3,4},
  int64[3] shape3={-1,-1,4}
"""
WEIGHTS = {
    "W0": (1, 3, 4),
    "R0": (1, 3, 3),
    "W": (2, 12, 4),
    "R": (2, 12, 3),
    "W1": (1, 12, 4),
    "R1": (1, 12, 3),
    "WG": (1, 9, 4),
    "RG": (1, 9, 3),
    "K": (1, 1, 3, 3),
    "K1": (1, 1, 1, 1),
}

CASES = {
    "concat": "y = Concat<axis=1>(z, x)",
    "concat of three": "y = Concat<axis=1>(x, z, x)",
    "concat last": "y = Concat<axis=-1>(x, x)",
    "concat softmax": """
        c = Concat<axis=1>(z, x)
        y = Softmax<axis=1>(c)
        """,
    "slice": "y = Slice(x, n0, n1, n1)",
    "slice last": "y = Slice(x, m1, big, n1)",
    "slice but last": "y = Slice(x, n0, m1, n1)",
    "slice reverse": "y = Slice(x, m1, neg, n1, m1)",
    "slice from 1 step 2": "y = Slice(x, n1, big, n1, n2)",
    "slice last two": "y = Slice(x, m2, big, n1)",
    "slice shape": """
        sh = Shape(z)
        q = Slice(sh, n1, n2, n0)
        y = Slice(x, n0, q, n1)
        """,
    "slice from shape": """
        sh = Shape(z)
        q = Slice(sh, n1, n2, n0)
        c = Concat<axis=1>(z, x)
        y = Slice(c, q, big, n1)
        """,
    "gather last": "y = Gather<axis=1>(x, m1)",
    "gather many": """
        w = Slice(x, n0, n1, n1)
        c = Concat<axis=1>(x, w)
        y = Gather<axis=1>(c, idxs0)
        """,
    "gather seq": """
        t2 = Transpose<perm=[1,0,2]>(x)
        f = Slice(t2, n0, n1, n0)
        t3 = Squeeze(f, n0)
        y = Gather<axis=0>(t3, n0)
        """,
    "embed": """
        tab = Slice(x, n0, n1, n1)
        tb = ReduceSum<keepdims=0>(x, ax01)
        y = Gather<axis=0>(tb, i)
        """,
    "split": """
        sh = Shape(x)
        q = Gather(sh, n1)
        r = Sub(q, n1)
        sp = Concat<axis=0>(n1, r)
        a, d = Split<axis=1>(x, sp)
        y = Concat<axis=1>(d, a)
        """,
    "tile": "y = Tile(x, r321)",
    "reshape merge": "y = Reshape(x, flat)",
    "reshape split": "y = Reshape(x, sh24)",
    "merge softmax": """
        f = Reshape(x, flat)
        y = Softmax<axis=0>(f)
        """,
    "merge reverse": """
        f = Reshape(x, flat)
        y = Slice(f, m1, neg, n0, m1)
        """,
    "merge gather": """
        f = Reshape(x, flat)
        y = Slice(f, m1, big, n0)
        """,
    "reshape swap": """
        sh = Shape(x)
        bb = Gather(sh, n0)
        ss = Gather(sh, n1)
        w = Concat<axis=0>(ss, bb, e4)
        y = Reshape(x, w)
        """,
    "range": """
        sh = Shape(x)
        q = Gather(sh, c1)
        r = Range(c0, q, c1)
        u = Unsqueeze(r, n0)
        f = Cast<to=1>(u)
        y = ReduceSum<keepdims=0>(f, n1)
        """,
    "range from": """
        sh = Shape(x)
        q = Gather(sh, c1)
        sz = Shape(z)
        p = Gather(sz, c1)
        e = Add(p, q)
        r = Range(p, e, c1)
        y = Identity(r)
        """,
    "causal": """
        t2 = Transpose<perm=[0,2,1]>(x)
        s1 = MatMul(x, t2)
        sh = Shape(x)
        q = Gather(sh, c1)
        r = Range(c0, q, c1)
        u = Unsqueeze(r, n0)
        v = Unsqueeze(r, n1)
        m = LessOrEqual(u, v)
        mi = Log(zero)
        w = Where(m, s1, mi)
        p = Softmax<axis=-1>(w)
        y = MatMul(p, x)
        """,
    "trilu": """
        sh = Shape(x)
        q = Gather(sh, n1)
        qq = Concat<axis=0>(q, q)
        o = ConstantOfShape(qq)
        t = Trilu<upper=1>(o, c1)
        t2 = Transpose<perm=[0,2,1]>(x)
        s1 = MatMul(x, t2)
        y = Add(s1, t)
        """,
    "expand": """
        sh = Shape(x)
        f = Slice(x, n0, n1, n1)
        y = Expand(f, sh)
        """,
    "expand const": """
        sh = Shape(x)
        e = Expand(one, sh)
        y = ReduceSum<keepdims=0>(e, ax01)
        """,
    "cumsum": "y = CumSum(x, c1)",
    "cumsum rev": "y = CumSum<reverse=1, exclusive=1>(x, c1)",
    "pad": "y = Pad(x, pads)",
    "pad sum": """
        p = Pad(x, pads, half)
        y = ReduceSum<keepdims=0>(p, n1)
        """,
    "size": """
        n = Size(x)
        f = Cast<to=1>(n)
        s = ReduceSum<keepdims=0>(x)
        y = Div(s, f)
        """,
    "onehot": "y = OneHot(i, k3, onoff)",
    "mean via shape": """
        s = ReduceSum<keepdims=0>(x, n1)
        sh = Shape(x)
        q = Gather(sh, c1)
        f = Cast<to=1>(q)
        r = Sqrt(f)
        y = Div(s, r)
        """,
    "topk": "y, k = TopK<axis=1>(x, k1)",
    "argmax": "y = ArgMax<axis=1>(x)",
    "layernorm": "y = LayerNormalization<axis=-1>(x, g4)",
    "meanvar": "y = MeanVarianceNormalization<axes=[0,1]>(x)",
    "einsum": 'y = Einsum<equation="bsd,btd->bst">(x, z)',
    "squeeze": """
        f = Slice(x, n0, n1, n1)
        y = Squeeze(f, n1)
        """,
    "int div": "y = Div(i, i)",
    "all true": """
        f = Cast<to=9>(i)
        n = Not(f)
        c = Cast<to=6>(n)
        y = ReduceMin<keepdims=0>(c)
        """,
    "pad reflect": """
        c2 = Concat<axis=1>(x, x)
        y = Pad<mode="reflect">(c2, padsr)
        """,
    "pad edge": 'y = Pad<mode="edge">(x, pads)',
    "pad wrap": 'y = Pad<mode="wrap">(x, pads1)',
    "pad to max": """
        sh = Shape(x)
        q = Slice(sh, n1, n2)
        d = Sub(six, q)
        pp = Concat<axis=0>(n0, n0, n0, n0, d, n0)
        y = Pad(x, pp)
        """,
    "pad shift": """
        sh = Shape(x)
        q = Slice(sh, n1, n2)
        pp = Concat<axis=0>(n0, q, n0, n0, n1, n0)
        y = Pad(x, pp, half)
        """,
    "gather elements": """
        ii = Cast<to=7>(x)
        cc = Clip(ii, cm4, c3)
        y = GatherElements<axis=2>(x, cc)
        """,
    "gather el seq": """
        ii = Cast<to=7>(x)
        cc = Clip(ii, cm1, c0)
        y = GatherElements<axis=1>(x, cc)
        """,
    "gather nd": """
        iu = Unsqueeze(i, m1)
        ic = Clip(iu, cm1, c0)
        y = GatherND(x, ic)
        """,
    "scatter el": """
        ii = Cast<to=7>(x)
        cc = Clip(ii, cm1, c0)
        y = ScatterElements<axis=1, reduction="add">(x, cc, x)
        """,
    "scatter nd": """
        t2 = Transpose<perm=[1,0,2]>(x)
        upd = Slice(t2, m1, big, n0)
        y = ScatterND(t2, ind1, upd)
        """,
    "scatter rows": """
        iu = Unsqueeze(i, m1)
        f = Flatten<axis=2>(x)
        z4 = ConstantOfShape(sh34)
        y = ScatterND<reduction="add">(z4, iu, x)
        """,
    "lstm": """
        t2 = Transpose<perm=[1,0,2]>(x)
        y, h, cl = LSTM<hidden_size=3, direction="bidirectional">(t2, W, R)
        """,
    "lstm h": """
        t2 = Transpose<perm=[1,0,2]>(x)
        q, y, cl = LSTM<hidden_size=3, direction="reverse">(t2, W1, R1)
        """,
    "gru": """
        t2 = Transpose<perm=[1,0,2]>(x)
        y, h = GRU<hidden_size=3>(t2, WG, RG)
        """,
    "gru softmax": """
        t2 = Transpose<perm=[1,0,2]>(x)
        q, h = GRU<hidden_size=3>(t2, WG, RG)
        y = Softmax<axis=0>(q)
        """,
    "resize nearest": """
        u = Unsqueeze(x, n1)
        y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(u, , sc)
        """,
    "resize linear": """
        u = Unsqueeze(x, n1)
        y = Resize<mode="linear">(u, , sc)
        """,
    "resize cubic": """
        u = Unsqueeze(x, n1)
        y = Resize<mode="cubic">(u, , sc)
        """,
    "resize half": """
        u = Unsqueeze(x, n1)
        c2 = Concat<axis=2>(u,u)
        y = Resize<mode="linear">(c2, , sch)
        """,
    "resize sizes": """
        u = Unsqueeze(x, n1)
        sh = Shape(u)
        k = Mul(sh, mul2)
        y = Resize<mode="linear">(u, , , k)
        """,
    "conv": """
        u = Unsqueeze(x, n1)
        y = Conv<pads=[1,1,1,1], kernel_shape=[3,3]>(u, K)
        """,
    "conv2": """
        u = Unsqueeze(x, n1)
        y0 = Conv<pads=[1,1,1,1], strides=[2,2]>(u, K)
        e = Exp(y0)
        y = GlobalAveragePool(e)
        """,
    "conv same": """
        u = Unsqueeze(x, n1)
        y = Conv<auto_pad="SAME_UPPER">(u, K)
        """,
    "convT": """
        u = Unsqueeze(x, n1)
        y = ConvTranspose<strides=[2,2], pads=[1,0,1,0]>(u, K)
        """,
    "maxpool": """
        u = Unsqueeze(x, n1)
        y = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(u)
        """,
    "maxpool ceil": """
        u = Unsqueeze(x, n1)
        c2 = Concat<axis=2>(u,u)
        y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(c2)
        """,
    "avgpool": """
        u = Unsqueeze(x, n1)
        y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,1]>(u)
        """,
    "avgpool count": """
        u = Unsqueeze(x, n1)
        y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(u)
        """,
    "lppool": """
        u = Unsqueeze(x, n1)
        y = LpPool<kernel_shape=[3,3], pads=[1,1,1,1], p=2>(u)
        """,
    "globalmax": """
        u = Unsqueeze(x, n1)
        y = GlobalMaxPool(u)
        """,
    "instnorm": """
        u = Unsqueeze(x, n1)
        y = InstanceNormalization(u, one, zero)
        """,
    "depth": """
        u = Unsqueeze(x, n1)
        c2 = Concat<axis=1>(u,u,u,u)
        y = DepthToSpace<blocksize=2>(c2)
        """,
    "reverse sequence": """
        li = ReduceMax<keepdims=0>(i, n1)
        lens = Clip(li, c0, c1)
        t2 = Transpose<perm=[1,0,2]>(x)
        y = ReverseSequence<batch_axis=1, time_axis=0>(t2, lens)
        """,
    "qdq": """
        q = QuantizeLinear(x, half, u8)
        y = DequantizeLinear(q, half, u8)
        """,
    "dql": """
        q, sc2, zp2 = DynamicQuantizeLinear(x)
        y = DequantizeLinear(q, sc2, zp2)
        """,
    "dropout": "y, mk = Dropout(x)",
    "hardmax": "y = Hardmax<axis=1>(x)",
    "max variadic": "y = Max(x, x, half)",
    "sum where": """
        g2 = Greater(x, half)
        w = Where(g2, x, half)
        y = ReduceSum<keepdims=0>(w, n0)
        """,
    "shape float": """
        sh = Shape(x)
        f = Cast<to=1>(sh)
        q = Gather(f, c1)
        y = Mul(x, q)
        """,
    "where shape": """
        sh = Shape(x)
        k = ConstantOfShape<value = int64[1] {1}>(e1)
        mm = Mul(k, m1)
        e = Equal(shape3, mm)
        w = Where(e, k, shape3)
        y = Expand(x, w)
        """,
    "arg min, the last": "y = ArgMin<axis=1, select_last_index=1>(x)",
    "product": "y = ReduceProd(x, n1)",
    "max of two axes": "y = ReduceMax(x, ax01)",
    "log sum exp": "y = ReduceLogSumExp(x, n1)",
    "log softmax": "y = LogSoftmax<axis=1>(x)",
    "softmax of merged axes": """
        f = Flatten<axis=2>(x)
        y = Softmax<axis=0>(f)
        """,
    "norm": "y = ReduceL2(x, n1)",
    "variance": """
        m = ReduceMean(x, n1)
        d = Sub(x, m)
        q = Mul(d, d)
        y = ReduceMean(q, n1)
        """,
    "product over the axis": """
        t2 = Transpose<perm=[0, 2, 1]>(x)
        y = MatMul(t2, x)
        """,
    "log of zeros": """
        r = Relu(x)
        l = Log(r)
        y = ReduceMax(l, n1)
        """,
    "if": """
        sm = ReduceSum<keepdims=0>(x)
        cond = Greater(sm, half)
        y = If (cond) <then_branch = g1 () => (float[] o) { o = Softmax<axis=1>(x) }, else_branch = g2 () => (float[] p) { p = Neg(x) }>
        """,
    "batch norm": """
        u = Transpose<perm=[0, 2, 1]>(x)
        y = BatchNormalization(u, g4, g4, g4, g4)
        """,
    "space to depth": """
        u = Unsqueeze(x, n1)
        c = Concat<axis=2>(u, u)
        y = SpaceToDepth<blocksize=2>(c)
        """,
    "global lp pool": """
        u = Unsqueeze(x, n1)
        y = GlobalLpPool(u)
        """,
    "group norm": """
        u = Unsqueeze(x, n1)
        c = Concat<axis=1>(u, u)
        y = GroupNormalization<num_groups=1>(c, ones2, ones2)
        """,
    "lrn": """
        u = Transpose<perm=[0, 2, 1]>(x)
        y = LRN<size=3>(u)
        """,
    "lp norm": "y = LpNormalization<axis=1>(x)",
    "matmul integer": """
        d = Cast<to=2>(i)
        t2 = Transpose<perm=[1, 0]>(d)
        y = MatMulInteger(t2, d, u8, u8)
        """,
    "qlinear matmul": """
        d = Cast<to=2>(i)
        t2 = Transpose<perm=[1, 0]>(d)
        y = QLinearMatMul(t2, half, u8, d, half, u8, half, u8)
        """,
    "conv integer": """
        d = Cast<to=2>(i)
        u = Unsqueeze(d, ax01)
        y = ConvInteger<pads=[1, 1, 1, 1]>(u, k8, u8)
        """,
    "qlinear conv": """
        d = Cast<to=2>(i)
        u = Unsqueeze(d, ax01)
        y = QLinearConv<pads=[1, 1, 1, 1]>(u, half, u8, k8, half, u8, half, u8)
        """,
    "gemm": """
        f = Flatten<axis=2>(x)
        y = Gemm<transA=1, alpha=0.5>(f, f)
        """,
    "sum square": "y = ReduceSumSquare(x, n1)",
    "log sum": """
        a = Abs(x)
        y = ReduceLogSum(a, n1)
        """,
    "absolute sum": "y = ReduceL1(x, n1)",
    "eye": """
        f = ReduceSum(x, n2)
        q = Squeeze(f, n2)
        y = EyeLike(q)
        """,
    "upsample": """
        u = Unsqueeze(x, n1)
        y = Resize<mode="nearest">(u, , sc)
        """,
    "rnn": """
        t2 = Transpose<perm=[1, 0, 2]>(x)
        q, y = RNN<hidden_size=3>(t2, W0, R0)
        """,
    "attention": "y = Attention<q_num_heads=2, kv_num_heads=2>(x, x, x)",
    "rotary": "y = RMSNormalization<axis=-1>(x, g4)",
    "cum prod": "y = CumProd<reverse=1>(x, c1)",
    "scan": """
        t2 = Transpose<perm=[1, 0, 2]>(x)
        f = ReduceSum<keepdims=0>(x, n1)
        last, y = Scan<num_scan_inputs=1, body = step (h, e) => (h2, o) { h2 = Add(h, e) o = Tanh(h2) }>(f, t2)
        """,
    "scan backwards": """
        f = ReduceMax<keepdims=0>(x, n1)
        last, y = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], scan_input_directions=[1], scan_output_directions=[1],
        body = step (h, e) => (h2, o) { h2 = Add(h, e) o = Mul(h2, e) }>(f, x)
        """,
    "scan, last state": """
        t2 = Transpose<perm=[1, 0, 2]>(x)
        f = ReduceSum<keepdims=0>(x, n1)
        y, rows = Scan<num_scan_inputs=1, body = step (h, e) => (h2, o) { hh = Mul(h, half) h2 = Add(hh, e) o = Identity(h2) }>(f, t2)
        """,
    "scan over features": """
        t2 = Transpose<perm=[2, 0, 1]>(x)
        f = ReduceSum<keepdims=0>(t2, n0)
        last, y = Scan<num_scan_inputs=1, body = step (h, e) => (h2, o) { q = Softmax<axis=1>(h) h2 = Add(q, e) o = Tanh(h2) }>(f, t2)
        """,
    "loop over a size": """
        sh = Shape(x)
        q = Gather(sh, c1)
        f = ReduceMean<keepdims=0>(x, n1)
        y, rows = Loop(q, , f) <
        body = turn (it, go, h) => (go2, h2, o) {
        go2 = Identity(go) g = Gather<axis=1>(x, it) m = Mul(h, half) h2 = Add(m, g) o = Tanh(h2) }>
        """,
    "rows of a loop": """
        sh = Shape(x)
        q = Gather(sh, c1)
        f = ReduceMean<keepdims=0>(x, n1)
        last, y = Loop(q, , f) <
        body = turn (it, go, h) => (go2, h2, o) {
        go2 = Identity(go) g = Gather<axis=1>(x, it) m = Mul(h, half) h2 = Add(m, g) o = Tanh(h2) }>
        """,
    "loop that carries a size": """
        y = Loop(c20, , x) <body = turn (it, go, h) => (go2, h2) { go2 = Identity(go) p = Softmax<axis=1>(h) h2 = Add(p, x) }>
        """,
    "loop that grows": """
        y = Loop(c2, , x) <body = turn (it, go, h) => (go2, h2) { go2 = Identity(go) p = Softmax<axis=1>(h) h2 = Concat<axis=1>(p, x) }>
        """,
    "conv same stride": """
        u = Unsqueeze(x, n1)
        y = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(u, K)
        """,
    "conv same lower": """
        u = Unsqueeze(x, n1)
        y = Conv<auto_pad="SAME_LOWER", strides=[3, 1]>(u, K)
        """,
    "max pool same": """
        u = Unsqueeze(x, n1)
        y = MaxPool<auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]>(u)
        """,
    "conv same small": """
        u = Unsqueeze(x, n1)
        c = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(u, K)
        d = Conv<auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[1, 1]>(u, K1)
        y = Add(c, d)
        """,
    "resize to a size": """
        u = Unsqueeze(x, n1)
        sz = Shape(z)
        q = Slice(sz, n1, n2)
        to = Concat<axis=0>(n1, n1, q, six)
        ub = ReduceMean(u, n0)
        y = Resize<mode="linear">(ub, , , to)
        """,
    "resize with corners": """
        u = Unsqueeze(x, n1)
        y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(u, , sc)
        """,
    "resize as torch": """
        u = Unsqueeze(x, n1)
        sz = Shape(z)
        q = Slice(sz, n1, n2)
        to = Concat<axis=0>(n1, n1, q, six)
        ub = ReduceMean(u, n0)
        y = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(ub, , , to)
        """,
}
OPSETS = {"group norm": 21, "attention": 23, "rotary": 23, "cum prod": 26}


def case(name: str) -> ModelProto:
    """Builds the model of a case; it has the inputs that it reads."""
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["":{OPSETS.get(name, 18)}]>\ng ({INPUTS}) => (float[] y) <{CONSTANTS}> {{\n{CASES[name]}\n}}'
    )
    model.graph.output[0].ClearField("type")
    rng = np.random.default_rng(5)
    read = {n for node in model.graph.node for n in node.input}
    read |= {n for node in model.graph.node for a in node.attribute for inner in a.g.node for n in inner.input}
    for weight, shape in WEIGHTS.items():
        if weight in read:
            model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), weight))
    inputs = [i for i in model.graph.input if i.name in read]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def dims_of(model: ModelProto) -> list[str]:
    """Lists the dimensions that a model's inputs name."""
    return sorted({d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param})
