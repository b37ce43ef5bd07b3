"""Recurrent and attention layers equal PyTorch's: outputs, states, gradients, training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DTypeError, OptionError, ShapeError

POOLS = [("inline", 1), ("shared", 2), ("messages", 3)]
X = np.random.default_rng(0).normal(size=(6, 7, 8))
CLASSES = 4
LABELS = np.random.default_rng(1).integers(0, CLASSES, 6)
F = nn.functional


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x).copy())


# counterparts ------------------------------------------------------------------------------------------


def recurrent_counterpart(ours: Any, kind: Any) -> torch.nn.Module:
    theirs = kind(
        8, ours.units, len(ours.layers), bidirectional=ours.bidirectional, batch_first=True
    ).double()
    for i, directions in enumerate(ours.layers):
        for j, direction in enumerate(directions):
            end = f"_l{i}" + "_reverse" * j
            for name, weight, bias in (
                ("ih", direction.input_weight, direction.input_bias),
                ("hh", direction.hidden_weight, direction.hidden_bias),
            ):
                getattr(theirs, f"weight_{name}{end}").data = tensor(weight).T.contiguous()
                getattr(theirs, f"bias_{name}{end}").data = tensor(bias)
    return theirs


def attention_counterpart(ours: nn.MultiheadAttention) -> torch.nn.MultiheadAttention:
    theirs = torch.nn.MultiheadAttention(ours.features, ours.heads, batch_first=True).double()
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([tensor(part.weight).T for part in parts])
    theirs.in_proj_bias.data = torch.cat([tensor(part.bias) for part in parts])
    theirs.out_proj.weight.data = tensor(ours.output.weight).T.contiguous()
    theirs.out_proj.bias.data = tensor(ours.output.bias)
    return theirs


def encoder_counterpart(ours: nn.TransformerEncoderLayer) -> torch.nn.TransformerEncoderLayer:
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=ours.norm_first
    ).double()
    theirs.self_attn = attention_counterpart(ours.attention)
    for dense, linear in ((ours.first, theirs.linear1), (ours.second, theirs.linear2)):
        linear.weight.data, linear.bias.data = (
            tensor(dense.weight).T.contiguous(),
            tensor(dense.bias),
        )
    return theirs


def decoder_counterpart(ours: nn.TransformerDecoderLayer) -> torch.nn.TransformerDecoderLayer:
    theirs = torch.nn.TransformerDecoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=ours.norm_first
    ).double()
    theirs.self_attn = attention_counterpart(ours.attention)
    theirs.multihead_attn = attention_counterpart(ours.memory_attention)
    for dense, linear in ((ours.first, theirs.linear1), (ours.second, theirs.linear2)):
        linear.weight.data, linear.bias.data = (
            tensor(dense.weight).T.contiguous(),
            tensor(dense.bias),
        )
    for own, norm in zip(ours.norms, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True):
        norm.weight.data, norm.bias.data = tensor(own.weight), tensor(own.bias)
    return theirs


KINDS = {"RNN": torch.nn.RNN, "GRU": torch.nn.GRU, "LSTM": torch.nn.LSTM}


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
@pytest.mark.parametrize("name", KINDS)
def test_recurrent_layers(
    name: str, layers: int, bidirectional: bool, kind: str, workers: int
) -> None:
    with current(kind, workers):
        ours = getattr(nn, name)(5, layers=layers, bidirectional=bidirectional)
        x = mm.asarray(X)
        outputs, state = ours(x)
        theirs = recurrent_counterpart(ours, KINDS[name])
        expected, last = theirs(tensor(X))
        last = last if isinstance(last, tuple) else (last,)
        np.testing.assert_allclose(outputs, expected.detach(), atol=1e-12)
        for actual, wanted in zip(state, last, strict=True):
            np.testing.assert_allclose(actual, wanted.detach(), atol=1e-12)
        again, _ = ours(x, state)  # continues from the last state
        continued, _ = theirs(tensor(X), last if name == "LSTM" else last[0])
        np.testing.assert_allclose(again, continued.detach(), atol=1e-12)
        slopes = mm.grad((outputs * outputs).sum(), ours.trainable())
        (expected * expected).sum().backward()
        wanted = {p: v.grad.T if v.ndim == 2 else v.grad for p, v in theirs.named_parameters()}
        order = [
            f"{part}_l{i}" + "_reverse" * j
            for i in range(layers)
            for j in range(1 + bidirectional)
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        for slope, path in zip(slopes, order, strict=True):
            np.testing.assert_allclose(slope, wanted[path], atol=1e-10, err_msg=path)


VARIANTS = [
    ("RNN", {"bias": False}, {"bias": False}),
    ("GRU", {"bias": False}, {"bias": False}),
    ("LSTM", {"bias": False}, {"bias": False}),
    ("RNN", {"activation": "relu"}, {"nonlinearity": "relu"}),
]


@pytest.mark.parametrize(("name", "options", "counterparts"), VARIANTS)
def test_recurrent_layers_without_biases_and_with_relu(
    name: str, options: dict[str, Any], counterparts: dict[str, Any]
) -> None:
    """The layer, its gradients and its cell, with PyTorch's weights."""
    torch.manual_seed(0)
    theirs = KINDS[name](8, 5, 2, batch_first=True, **counterparts).double()
    expected, _ = theirs(tensor(X))
    (expected * expected).sum().backward()
    with current("inline"):
        ours = getattr(nn, name)(5, layers=2, **options).build(X.shape)
        parts = [part for (part,) in ours.layers]
        for i, part in enumerate(parts):
            for path in part.state_dict():
                getattr(part, path).assign(_parameter_of(theirs, path, i))
        outputs, _ = ours(mm.asarray(X))
        np.testing.assert_allclose(outputs, expected.detach(), atol=1e-12)
        slopes = mm.grad((outputs * outputs).sum(), ours.trainable())
        names = [(path, i) for i, part in enumerate(parts) for path in part.state_dict()]
        for slope, (path, i) in zip(slopes, names, strict=True):
            wanted = _parameter_of(theirs, path, i, gradient=True)
            np.testing.assert_allclose(slope, wanted, atol=1e-10, err_msg=path)
        cell = getattr(nn, f"{name}Cell")(5, **options)
        cell.direction = parts[0]
        state = cell(mm.asarray(X[:, 0]))
        single = KINDS[name](8, 5, batch_first=True, **counterparts).double()
        single.load_state_dict({k: v for k, v in theirs.state_dict().items() if k.endswith("l0")})
        hidden = state[0] if name == "LSTM" else state
        np.testing.assert_allclose(hidden, single(tensor(X[:, :1]))[0][:, 0].detach(), atol=1e-12)


def _parameter_of(theirs: Any, path: str, layer: int, *, gradient: bool = False) -> Any:
    """Return the parameter of PyTorch's layer, or its gradient, with a path of ours."""
    part, kind = path.split("_")
    found = getattr(theirs, f"{kind}_{'ih' if part == 'input' else 'hh'}_l{layer}")
    values = found.grad if gradient else found.detach()
    return (values.T if values.ndim == 2 else values).numpy()


def test_an_unknown_activation_of_a_recurrent_layer() -> None:
    with pytest.raises(OptionError, match="RNN: activation is 'tanh' or 'relu', was given 's"):
        nn.RNN(3, activation="sigmoid")


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_cells(name: str, compiled: bool, kind: str, workers: int) -> None:
    """A loop over time, with the loss of its last state: values and gradients."""
    with current(kind, workers):
        ours = getattr(nn, f"{name}Cell")(5)
        x = mm.asarray(X)
        first = ours(x[:, 0])
        theirs = getattr(torch.nn, f"{name}Cell")(8, 5).double()
        part = ours.direction
        theirs.weight_ih.data = tensor(part.input_weight).T.contiguous()
        theirs.weight_hh.data = tensor(part.hidden_weight).T.contiguous()
        theirs.bias_ih.data, theirs.bias_hh.data = tensor(part.input_bias), tensor(part.hidden_bias)
        wanted = theirs(tensor(X)[:, 0])
        for actual, expected in zip(*[(z,) if name != "LSTM" else z for z in (first, wanted)]):  # noqa: B905
            np.testing.assert_allclose(actual, expected.detach(), atol=1e-12)

        def loss(x: Any) -> Any:
            state = None
            for t in range(x.shape[1]):
                state = ours(x[:, t], state)
            return ((state[0] if name == "LSTM" else state) ** 2).sum()

        def step(x: Any) -> Any:
            return mm.value_and_grad(lambda: loss(x), ours.trainable())

        total, slopes = (mm.compile(lambda x: _listed(step(x))) if compiled else step)(x)
        state = None
        for t in range(7):
            state = theirs(tensor(X)[:, t], state)
        expected = ((state[0] if name == "LSTM" else state) ** 2).sum()
        expected.backward()
        assert float(total) == pytest.approx(expected.item())
        grads = [theirs.weight_ih.grad.T, theirs.weight_hh.grad.T, theirs.bias_ih.grad,
                 theirs.bias_hh.grad]  # fmt: skip
        for slope, grad in zip(_listed((total, slopes))[1], grads, strict=True):
            np.testing.assert_allclose(slope, grad, atol=1e-10)


def _listed(result: Any) -> Any:
    """A loss and its gradients, in the order of the parameters."""
    total, slopes = result
    return total, list(slopes.values()) if isinstance(slopes, dict) else slopes


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_decoder_layers(kind: str, workers: int, norm_first: bool) -> None:
    with current(kind, workers):
        ours = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first)
        x, memory = mm.asarray(X[:, :5]), mm.asarray(X * 0.5)
        ours(x, memory)
        theirs = decoder_counterpart(ours)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
        padding = np.ones((6, 7), dtype=bool)
        padding[:, 5:] = False
        expected = theirs(
            tensor(X[:, :5]), tensor(X * 0.5), tgt_mask=causal,
            memory_key_padding_mask=torch.from_numpy(~padding),
        )  # fmt: skip
        actual = ours(x, memory, causal=True, memory_key_mask=padding)
        np.testing.assert_allclose(actual, expected.detach(), atol=1e-12)
        loss = (actual * actual).sum()
        (expected * expected).sum().backward()
        dense = mm.grad(loss, [ours.first.weight, ours.memory_attention.output.weight])
        np.testing.assert_allclose(dense[0], theirs.linear1.weight.grad.T, atol=1e-10)
        np.testing.assert_allclose(
            dense[1], theirs.multihead_attn.out_proj.weight.grad.T, atol=1e-10
        )


def test_cells_refuse_sequences_and_states_of_other_shapes() -> None:
    with current("inline"):
        with pytest.raises(ShapeError, match=r"LSTMCell: takes \(N, inputs\).*mm\.nn\.LSTM"):
            nn.LSTMCell(5)(mm.asarray(X))
        with pytest.raises(ShapeError, match=r"GRUCell: the state is 1 × \(6, 5\)"):
            nn.GRUCell(5)(mm.asarray(X[:, 0]), mm.zeros((6, 4)))


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_attention(kind: str, workers: int) -> None:
    with current(kind, workers):
        ours = nn.MultiheadAttention(8, 2)
        x, keys = mm.asarray(X), mm.asarray(X[:, :5] * 0.5)
        ours(x, keys)
        theirs = attention_counterpart(ours)
        expected, _ = theirs(tensor(X), tensor(keys), tensor(keys))
        np.testing.assert_allclose(ours(x, keys), expected.detach(), atol=1e-12)
        allowed = np.random.default_rng(2).random((7, 7)) < 0.7
        allowed[:, 0] = True
        masked, _ = theirs(*[tensor(X)] * 3, attn_mask=torch.from_numpy(~allowed))
        np.testing.assert_allclose(ours(x, mask=allowed), masked.detach(), atol=1e-12)
        added = np.where(allowed, 0.5, -1.0)
        biased, _ = theirs(*[tensor(X)] * 3, attn_mask=torch.from_numpy(added))
        np.testing.assert_allclose(ours(x, mask=added), biased.detach(), atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_attention_function(kind: str, workers: int, causal: bool) -> None:
    draw = np.random.default_rng(3)
    q, k, v = (
        draw.normal(size=(2, 3, 5, 4)),
        draw.normal(size=(2, 3, 5, 4)),
        draw.normal(size=(2, 3, 5, 6)),
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v)), is_causal=causal
    )
    with current(kind, workers):
        actual = F.scaled_dot_product_attention(*map(mm.asarray, (q, k, v)), causal=causal)
        np.testing.assert_allclose(actual, expected, atol=1e-12)


def _masks(form: str) -> Any:
    """A mask in which some queries have no key, and the same for PyTorch."""
    allowed = np.random.default_rng(5).random((2, 1, 5, 5)) < 0.6
    allowed[0, 0, 1] = allowed[1, 0, 4] = False
    if form == "bool":
        return allowed
    return np.where(allowed, np.random.default_rng(6).normal(size=allowed.shape), -np.inf)


@pytest.mark.parametrize("form", ["bool", "added"])
@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_queries_without_keys(kind: str, workers: int, way: str, form: str) -> None:
    """Outputs, first and second gradients equal those of PyTorch, which are 0 and finite."""
    draw = np.random.default_rng(3)
    given = [draw.normal(size=(2, 3, 5, 4)) for _ in range(3)]
    mask, target = _masks(form), draw.normal(size=(2, 3, 5, 4))

    tensors = [torch.from_numpy(x).requires_grad_() for x in given]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        outputs = torch.nn.functional.scaled_dot_product_attention(
            *tensors, attn_mask=torch.from_numpy(mask)
        )
    loss = (outputs - torch.from_numpy(target)).square().sum()
    first = torch.autograd.grad(loss, tensors, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), tensors)

    def derivatives(*arrays: mm.Array) -> Any:
        def loss(*xs: mm.Array) -> mm.Array:
            return mm.sum((F.scaled_dot_product_attention(*xs, mask) - target) ** 2)

        def norm(*xs: mm.Array) -> mm.Array:
            return sum(mm.sum(g**2) for g in mm.grad(loss, argnums=(0, 1, 2))(*xs))

        actual = F.scaled_dot_product_attention(*arrays, mask)
        numbers = {"argnums": (0, 1, 2)}
        return actual, mm.grad(loss, **numbers)(*arrays), mm.grad(norm, **numbers)(*arrays)

    with current(kind, workers):
        run = mm.compile(derivatives) if way == "compiled" else derivatives
        y, once, twice = run(*map(mm.asarray, given))
        assert float(mm.sum(mm.abs(y[0, :, 1]))) == 0.0
        np.testing.assert_allclose(y, outputs.detach(), atol=1e-12)
        for ours, theirs in zip([*once, *twice], [*first, *second], strict=True):
            np.testing.assert_allclose(ours, theirs.detach(), atol=1e-10)


def test_padding_alone_does_not_spoil_gradients() -> None:
    """A sequence of padding only, whose outputs are discarded."""
    with current("inline", 1):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        kept = np.ones((6, 7), bool)
        kept[2] = False
        x = mm.asarray(X)
        layer.build(x.shape)
        gradients = mm.grad(lambda: mm.sum(layer(x, key_mask=kept)[:2] ** 2), layer.trainable())
        expected = mm.grad(lambda: mm.sum(layer(x[:2]) ** 2), layer.trainable())
        for v, gradient in gradients.items():
            np.testing.assert_allclose(gradient, expected[v], atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_training_a_transformer(kind: str, workers: int, way: str, norm_first: bool) -> None:
    with current(kind, workers):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first)
        head = nn.Dense(CLASSES)
        network = nn.Sequential(layer, nn.Lambda(lambda x: mm.mean(x, axis=1)), head)
        x, labels = mm.asarray(X), mm.asarray(LABELS)
        network(x)
        encoder = encoder_counterpart(layer)
        linear = torch.nn.Linear(8, CLASSES).double()
        linear.weight.data, linear.bias.data = tensor(head.weight).T.contiguous(), tensor(head.bias)
        theirs = torch.optim.SGD([*encoder.parameters(), *linear.parameters()], 0.1, momentum=0.9)
        ours = mm.optim.Momentum(0.1)

        def step() -> mm.Array:
            loss = nn.cross_entropy(network(x), labels)
            variables = network.trainable()
            ours.update(dict(zip(variables, mm.grad(loss, variables), strict=True)))
            return loss

        run = mm.compile(step) if way == "compiled" else step
        for _ in range(6):
            loss = torch.nn.functional.cross_entropy(
                linear(encoder(tensor(X)).mean(1)), torch.from_numpy(LABELS)
            )
            theirs.zero_grad()
            loss.backward()
            theirs.step()
            assert float(run()) == pytest.approx(loss.item(), rel=1e-9)


def test_a_recurrent_network_learns_a_sum() -> None:
    """The parity of a sequence of bits, which no single step shows."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2, (256, 6)).astype(float)

    class Parity(nn.Module):
        def __init__(self) -> None:
            self.memory = nn.LSTM(16)
            self.head = nn.Dense(2)

        def __call__(self, x: mm.Array) -> mm.Array:
            outputs, _ = self.memory(x)
            return self.head(outputs[:, -1])

    with current("inline", 1):
        mm.random.seed(0)
        network = Parity()
        trainer = mm.train.Trainer(
            network, loss=nn.cross_entropy, optimizer=mm.optim.Adam(0.02), metrics=["accuracy"]
        )
        labels = bits.sum(1).astype(int) % 2
        trainer.fit(bits[:, :, None], labels, batch_size=64, epochs=60, verbose=False)
        assert trainer.evaluate(bits[:, :, None], labels)["accuracy"] > 0.95


def test_dropout_between_layers_and_of_weights() -> None:
    with current("inline", 1):
        x = mm.asarray(X)
        for network in (
            nn.LSTM(5, layers=2, dropout=0.5),
            nn.MultiheadAttention(8, 2, dropout=0.5),
        ):
            first = network(x)
            second = network(x)
            one, two = (y[0] if isinstance(y, tuple) else y for y in (first, second))
            assert not np.allclose(one, two)
            network.eval()
            one, two = (y[0] if isinstance(y, tuple) else y for y in (network(x), network(x)))
            np.testing.assert_array_equal(one, two)


def test_mistakes() -> None:
    with current("inline", 1):
        x = mm.asarray(X)
        with pytest.raises(ValueError, match="heads must divide the features, was given 3 for 8"):
            nn.MultiheadAttention(8, 3)
        with pytest.raises(ValueError, match=r"takes queries \(N, length, features\)"):
            nn.MultiheadAttention(8, 2)(x[0])
        with pytest.raises(ValueError, match=r"LSTM: takes \(N, length, inputs\)"):
            nn.LSTM(4)(x[0])
        with pytest.raises(ValueError, match=r"the state is 2 × \(1, 6, 4\), was given"):
            nn.LSTM(4)(x, mm.zeros((1, 6, 4)))
        with pytest.raises(ValueError, match="8 features and keys 5"):
            F.attention_weights(x, mm.ones((6, 3, 5)))


def test_key_masks_exclude_padding() -> None:
    draw = np.random.default_rng(0)
    x = mm.asarray(draw.normal(size=(4, 4, 6)))
    attention = nn.MultiheadAttention(6, 2)
    attention.build(x.shape)
    attention.astype(mm.float64)
    lengths = np.arange(1, 5)
    kept = np.arange(4) < lengths[:, None]
    causal = np.tril(np.ones((4, 4), bool))
    added = draw.normal(size=(4, 4))
    for mask in (None, causal, added):
        actual = attention(x, mask=mask, key_mask=kept).numpy()
        for row, length in enumerate(lengths):
            short = x[row : row + 1, :length]
            part = None if mask is None else mask[:length, :length]
            expected = attention(short, mask=part).numpy()
            np.testing.assert_allclose(actual[row, :length], expected[0], rtol=1e-9, atol=1e-12)
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0)
    padded = mm.where(mm.asarray(kept)[:, :, None], x, 7.0)
    first, second = (layer(y, key_mask=kept).numpy()[kept] for y in (x, padded))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    with pytest.raises(DTypeError, match="must be bool.*given int64"):
        attention(x, mask=mm.asarray([[1, 1, 0, 1]]))
    with pytest.raises(ShapeError, match=r"end with \(queries, keys\).*key_mask="):
        attention(x[:3], mask=kept[:3])
    with pytest.raises(ShapeError, match=r"key_mask must be bool \(4, 4\)"):
        attention(x, key_mask=kept[:3])


@pytest.mark.parametrize("weights", ["float32", "float64"])
@pytest.mark.parametrize("inputs", ["int64", "float32", "float64"])
@pytest.mark.parametrize("state", [None, "float32", "float64"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_inputs_states_and_weights_may_have_other_types(
    kind: Any, state: str | None, inputs: str, weights: str
) -> None:
    with current("inline", 1):
        layer = kind(4, layers=2, bidirectional=True).build((1, 1, 8))
        x = (X * 3).astype("int64") if inputs == "int64" else X
        values = np.random.default_rng(2).normal(size=(4, 6, 4))

        def outputs(x_type: str, state_type: str | None) -> Any:
            first: Any = None
            if state_type is not None:
                first = mm.asarray(values, dtype=state_type)
                first = (first, first) if kind is nn.LSTM else first
            return layer(mm.asarray(x, dtype=x_type), first)[0].numpy()

        expected = outputs("float64", None if state is None else "float64")
        layer.astype(weights)
        np.testing.assert_allclose(outputs(inputs, state), expected, rtol=1e-4, atol=1e-5)


def test_masks_of_integers_are_refused_with_and_without_masks_of_keys() -> None:
    layer, x = mm.nn.MultiheadAttention(8, 2), mm.ones((2, 4, 8))
    causal = np.tril(np.ones((4, 4), int))
    for key_mask in (None, np.ones((2, 4), bool)):
        with pytest.raises(DTypeError, match="a mask must be bool"):
            layer(x, mask=causal, key_mask=key_mask)
