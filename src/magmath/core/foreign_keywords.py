"""Names of parameters in PyTorch, Keras and JAX, with those of magmath, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIRST_CALL = "the number of inputs follows from the first call"
_DEVICE = 'the device is chosen once, by mm.init(device="cuda")'
_GRADIENTS = (
    "no array requires gradients: mm.grad(loss, x) differentiates with respect to any array"
)
_IN_PLACE = "magmath chooses the memory of results"

KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    # optimizers and schedules
    "lr": ("learning_rate", "rate"),
    "betas": ("beta1=… and beta2=… are separate",),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "eps": ("epsilon",),
    "alpha": ("decay",),
    "maximize": ("minimize the negative of the value",),
    "dampening": ("scale the learning rate by 1 - dampening",),
    "rho": ("decay",),
    "lr_decay": ("learning_rate_decay",),
    "clipnorm": ("clip_norm",),
    "max_norm": ("clip_norm",),
    "clipvalue": ("clip_value",),
    "params": ("minimize and update take the variables",),
    "gamma": ("factor",),
    "step_size": ("size",),
    "T_max": ("steps",),
    "total_steps": ("steps",),
    "max_lr": ("rate",),
    "eta_min": ("end",),
    "min_lr": ("minimum",),
    "base_lr": ("rate",),
    # layers
    "in_features": (_FIRST_CALL,),
    "in_channels": (_FIRST_CALL,),
    "num_features": (_FIRST_CALL,),
    "num_channels": (_FIRST_CALL,),
    "input_shape": ("mm.nn.Module.build(shape) sets the sizes before the first call",),
    "input_dim": ("count", _FIRST_CALL),
    "out_features": ("units",),
    "out_channels": ("channels",),
    "filters": ("channels",),
    "output_dim": ("features", "units"),
    "kernel_size": ("kernel",),
    "pool_size": ("kernel",),
    "strides": ("stride",),
    "dilation_rate": ("dilation",),
    "use_bias": ("bias",),
    "kernel_initializer": ("weight_init",),
    "bias_initializer": ("bias_init",),
    "output_size": ("size",),
    "start_dim": ("start_axis",),
    "return_sequences": ("the layer returns the outputs of all times and the last state",),
    "return_state": ("the layer returns the outputs of all times and the last state",),
    "num_embeddings": ("count",),
    "embedding_dim": ("features",),
    "elementwise_affine": ("affine",),
    "num_groups": ("groups",),
    "track_running_stats": ("running_moments",),
    "num_layers": ("layers",),
    "hidden_size": ("units",),
    "input_size": (_FIRST_CALL,),
    "batch_first": ("arrays are (N, length, features), as with batch_first=True",),
    "bias": ("affine", "the layer has no switch for its bias"),
    "nonlinearity": ("activation",),
    "embed_dim": ("features",),
    "d_model": ("features",),
    "num_heads": ("heads",),
    "nhead": ("heads",),
    "dim_feedforward": ("feedforward",),
    "layer_norm_eps": ("epsilon",),
    "kdim": (_FIRST_CALL,),
    "vdim": (_FIRST_CALL,),
    "attn_mask": ("mask",),
    "is_causal": ("causal",),
    "dropout_p": ("mm.nn.functional.dropout(attention_weights(…), rate) @ value applies dropout",),
    "padding_mode": ("mm.nn.CircularPad2d, ReflectionPad2d and ReplicationPad2d pad before it",),
    "p": ("rate",),
    "inplace": (_IN_PLACE,),
    # losses, training and data
    "input": ("outputs", "x"),
    "target": ("targets",),
    "y_pred": ("outputs",),
    "y_true": ("targets",),
    "metrics": ("mm.train.Trainer(module, loss, optimizer, metrics=…) reports metrics",),
    "momentum": ("mm.optim.Momentum(learning_rate, momentum) and Nesterov have a momentum",),
    "dataset": ("source",),
    "batch": ("batch_size",),
    "num_workers": ("threads",),
    "transform": ("transforms",),
    "model": ("module",),
    "criterion": ("loss",),
    "min_delta": ("minimum_change",),
    "restore_best_weights": ("restore_best",),
    "sep": ("delimiter",),
    "names": ("usecols",),
    "na_values": ("missing_values",),
    # functions
    "dim": ("axis",),
    "dims": ("axis", "axes"),
    "keepdim": ("keepdims",),
    "unbiased": ("correction",),
    "device": (_DEVICE,),
    "requires_grad": (_GRADIENTS,),
}
"""Names of parameters, with magmath's. The first entry that is a parameter of the function is
suggested; an entry with spaces is a hint in words."""


def check_assigned_name(owner: object, name: str) -> None:
    """Raise AttributeError for an attribute that `owner` lacks and has under another name."""
    if name in vars(owner) or hasattr(type(owner), name):
        return
    for attribute in KEYWORDS.get(name, ()):
        if attribute in vars(owner):
            raise AttributeError(
                f"{type(owner).__name__!r} object has no attribute {name!r}; write .{attribute} = "
                f"value"
            )
