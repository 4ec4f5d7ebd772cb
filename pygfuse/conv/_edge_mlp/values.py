"""Values on all edges that are never formed: what a network makes of the two ends of an edge, and its aggregation."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.row_products import sum_over_rows
from pygfuse.conv._edge_mlp.network import Dropout, Linear, Norm, Slope, Stage
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.degrees import counts_of, degrees
from pygfuse.ops.edge_mlp import Affine, Begin, EdgeStage, Map, Rectifier, edge_reduce
from pygfuse.ops.edge_mlp.batch_norm import mean_and_variance, scale_of, scaled_and_shifted, statistics_by
from pygfuse.ops.edge_mlp.drops import DropsOfEdges
from pygfuse.ops.nodes.large_sums import difference
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.program.activation import Activation
from pygfuse.program.library.edge_values import EDGE_SQUARES, EDGE_VALUES
from pygfuse.program.program import EdgeProgram


class EdgeValues:
    """``stages(target_i + source_j)`` on every edge (j, i), with nothing of edges in memory.

    A batch normalisation is folded into what comes before or after it once its statistics are known, so that stages
    are linear maps and activations, with at most one scale and shift after an activation.

    Args:
        pair: Features of sources and of targets.
        edges: The edges.
        num_edges: Their number.
    """

    def __init__(self, pair: tuple[Tensor, Tensor], edges: Edges, num_edges: int) -> None:
        self.source, self.target = pair
        self.edges, self.num_edges = edges, num_edges
        self.begun = False
        self.stages: list[EdgeStage] = []
        # the mean over edges that was moved out of both ends
        self.middle: Tensor | None = None
        self._degrees: tuple[Tensor, Tensor] | None = None
        self._drops = DropsOfEdges(num_edges, self.source)

    @property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """Number of edges of each target and of each source."""
        if self._degrees is None:
            self._degrees = degrees(self.edges, self.source)
        return self._degrees

    @property
    def channels(self) -> int:
        """Values of an edge."""
        maps = [stage for stage in self.stages if isinstance(stage, Map)]
        return maps[-1].weight.shape[0] if maps else self.source.shape[1]

    def apply(self, stage: Stage) -> None:
        """Adds a stage of the network."""
        if isinstance(stage, Linear):
            self._linear(stage.module.weight, stage.module.bias)
        elif isinstance(stage, Norm):
            self._normalise(stage)
        elif isinstance(stage, Dropout):
            self.stages.append(self._drops.stage(self.channels, stage.probability))
        elif isinstance(stage, Slope):
            self.stages.append(Rectifier(stage.weight.expand(self.channels)))
        else:
            self.stages.append(stage)

    def _linear(self, weight: Tensor, bias: Tensor | None) -> None:
        if not self.begun:
            # W [x_i, x_j - x_i] = W_1 x_i - W_2 x_i + W_2 x_j; W_1 - W_2 would hide that an infinite x_i gives NaN
            width = self.source.shape[1]
            of_target, of_difference = weight[:, :width], weight[:, width:]
            shared, target = self.target is self.source, self.target
            # functions that do not hold these values: autograd keeps them, and these values hold what it computed
            as_target, as_source = counts_of(self.edges, self.source)
            counts = (lambda: as_target() + as_source()) if shared else as_source
            self.source = apply_weight(self.source, of_difference, None, counts)
            subtracted = self.source if shared else apply_weight(target, of_difference, None, as_target)
            self.target, subtracted = difference(apply_weight(target, of_target, bias, as_target), subtracted)
            self.source = subtracted if shared else self.source
            self.begun = True
            return
        bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
        if self.stages and isinstance(self.stages[-1], Affine):
            before = self.stages.pop()
            weight, bias = weight * before.scale, torch.addmv(bias, weight, before.shift)
        self.stages.append(Map(weight, bias))

    # Batch normalisation

    def _normalise(self, norm: Norm) -> None:
        if not self.stages:
            self._leave_out_unconnected()
        like = self.source.new_empty(self.channels)
        module = norm.module
        mean, variance = statistics_by(module, self.num_edges, like, self._statistics, norm.allow_single)
        self._scale_and_shift(mean, scale_of(module, variance), module.bias)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and (biased) variance of the values over all edges."""
        if not self.stages:
            self._centre()
            squares = self._walk(EDGE_SQUARES['none'], {}, 'sum')
            return self.middle, squares.sum(dim=0) / self.num_edges
        known = self._program_of_last() if len(self.stages) == 1 else None
        if known is not None:
            name, operands = known
            mean = self._walk(EDGE_VALUES[name], operands, 'sum').sum(dim=0) / self.num_edges
            # the variance does not change with the shift at the mean: no gradient through it
            squares = self._walk(EDGE_SQUARES[name], {**operands, 'shift': mean.detach().unsqueeze(0)}, 'sum')
            return mean, squares.sum(dim=0) / self.num_edges
        return mean_and_variance(self._begun(), self.edges, self.source.dtype)

    def _begun(self) -> list[EdgeStage]:
        """All stages, as they run on chunks of edges."""
        return [Begin(self.source, self.target), *self.stages]

    def _leave_out_unconnected(self) -> None:
        """Rows that no edge reaches become zeros: what they hold may not be finite."""
        of_targets, of_sources = self.degrees
        self.target = torch.where(of_targets.unsqueeze(1) > 0, self.target, 0.0)
        self.source = torch.where(of_sources.unsqueeze(1) > 0, self.source, 0.0)

    def _centre(self) -> None:
        """Moves the mean over edges out of both ends: what is squared then does not cancel."""
        of_targets, of_sources = self.degrees
        first, second = (
            sum_over_rows(counts.unsqueeze(1), rows).squeeze(0) / self.num_edges
            for counts, rows in ((of_targets, self.target), (of_sources, self.source))
        )
        self.target, self.source = self.target - first, self.source - second
        self.middle = first + second

    def _scale_and_shift(self, mean: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        if not self.stages:
            if self.middle is not mean:
                self.target = self.target - mean
            self.source, self.target = self.source * scale, self.target * scale
            self.target = self.target if bias is None else self.target + bias
            return
        self.stages = scaled_and_shifted(self.stages, mean, scale, bias)

    # Aggregation

    def aggregate(self, reduce: str) -> Tensor:
        """The values of each target's edges, reduced: ``[targets, channels]``, 0 where there are none.

        Args:
            reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        """
        return self._total(reduce) if reduce in ('sum', 'mean') else self._extreme(reduce == 'min')

    def _total(self, reduce: str) -> Tensor:
        """What is affine at the end is done after the sum, once a node."""
        after: list[EdgeStage] = []
        while self.stages and isinstance(self.stages[-1], (Map, Affine)):
            after.append(self.stages.pop())
        out = self._reduced(reduce)
        if after:
            count = self.degrees[0].unsqueeze(1)
            count = count.clamp(max=1) if reduce == 'mean' else count
        for stage in reversed(after):
            if isinstance(stage, Map):
                out = torch.addmm(count * stage.bias, out, stage.weight.t())
            else:
                out = torch.addcmul(count * stage.shift, out, stage.scale)
        return out

    def _extreme(self, smallest: bool) -> Tensor:
        """What never falls or is affine at the end is done after the maximum, once a node.

        Where a scale is negative the maximum of what it scales becomes the minimum.
        """
        after: list[EdgeStage] = []
        direction = None
        while self.stages and (isinstance(self.stages[-1], Affine) or getattr(self.stages[-1], 'rises', False)):
            stage = self.stages.pop()
            after.append(stage)
            if isinstance(stage, Affine):
                sign = torch.where(stage.scale.detach() < 0, -1.0, 1.0).to(stage.scale.dtype)
                direction = sign if direction is None else direction * sign
        out = self._extreme_towards(direction, smallest)
        for stage in reversed(after):
            out = torch.addcmul(stage.shift, out, stage.scale) if isinstance(stage, Affine) else stage.of(out)
        if any(isinstance(stage, Affine) or not stage.keeps_zero for stage in after):
            out = torch.where(self.degrees[0].unsqueeze(1) > 0, out, 0.0)
        return out

    def _extreme_towards(self, direction: Tensor | None, smallest: bool) -> Tensor:
        """The maximum of each channel where `direction` is 1 (or None), the minimum where it is -1; or the reverse."""
        if direction is None and self._is_walked():
            return self._reduced('min' if smallest else 'max')
        if direction is None and not smallest:
            return self._reduced('max')
        ones = self.source.new_ones(self.channels)
        direction = (ones if direction is None else direction) * (-1.0 if smallest else 1.0)
        if not self.stages:
            self.source, self.target = self.source * direction, self.target * direction
        elif isinstance(self.stages[-1], Map):
            last = self.stages[-1]
            self.stages[-1] = Map(last.weight * direction.unsqueeze(1), last.bias * direction)
        else:
            self.stages.append(Affine(direction, torch.zeros_like(direction)))
        return self._reduced('max') * direction

    def _is_walked(self) -> bool:
        return not self.stages or (len(self.stages) == 1 and self._program_of_last() is not None)

    def _reduced(self, reduce: str) -> Tensor:
        if not self.stages:
            return self._walk(EDGE_VALUES['none'], {}, reduce)
        if self._is_walked():
            name, operands = self._program_of_last()
            return self._walk(EDGE_VALUES[name], operands, reduce)
        out = edge_reduce(self._begun(), self.edges, 'max' if reduce == 'max' else 'sum')
        return out / self.degrees[0].clamp(min=1).unsqueeze(1) if reduce == 'mean' else out

    def _program_of_last(self) -> tuple[str, dict[str, Tensor | float]] | None:
        """The name and operands of the program that has the last stage, an activation; None if there is none."""
        stage = self.stages[-1]
        if isinstance(stage, Rectifier):
            return 'prelu', {'slope': stage.slope.unsqueeze(0)}
        if isinstance(stage, Activation) and stage.name in EDGE_VALUES:
            return stage.name, stage.named_numbers
        return None

    def _walk(self, program: EdgeProgram, operands: dict[str, Tensor | float], reduce: str) -> Tensor:
        operands = {'x': self.source, 'x_dst': self.target, **operands}
        return aggregate(program, self.edges, operands, 1, self.source.shape[1], reduce).flatten(1)
