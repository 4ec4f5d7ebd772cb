"""Which lane of a warp, or of a block, holds which values of a row."""

from __future__ import annotations

import dataclasses
import functools

from pygfuse.codegen.llvm import power_of_two_at_least

WARP = 32
# threads of a block: enough to fill a multiprocessor with few blocks, few enough that a long row holds up little
BLOCK = 128
# the widest load of one lane
LOAD_BYTES = 16
ITEM_BYTES = {'float64': 8, 'float32': 4, 'float16': 2, 'bfloat16': 2}


@dataclasses.dataclass(frozen=True)
class Layout:
    """A row of heads x channels values dealt to the lanes of a warp, side by side so that loads coalesce.

    A lane loads vectors of up to 16 bytes, none of which holds two heads. The vectors of one head take a power of two
    of lanes, or all lanes several times; what is beyond the head's channels is masked. So each lane knows the head of
    each of its vectors without communication, and a sum over channels is a butterfly of shuffles. `subteams` such sets
    of lanes make a team, which walks a row together: each has edges of its own, of which it keeps `batch` in flight.
    A head that is too wide for the registers of a warp is dealt to all lanes of a block.

    Args:
        element: Type of the features in memory: ``'float32'``, ``'float64'``, ``'float16'`` or ``'bfloat16'``.
        heads: Number of heads held at once.
        channels: Channels of each head held at once.
        subteams: Edges that a team works on side by side, a power of two.
        batch: Edges in flight for each of them.
        stride: Channels of a head in memory, where a part of them is held; by default `channels`.
        over_block: Whether the row, of one head, is dealt to the lanes of a block in place of a warp's.

    Example:
        >>> layout = Layout('float32', 4, 64)
        >>> layout.vector, layout.lanes, layout.registers  # two loads of 16 bytes by each of 32 lanes
        (4, 32, 2)
    """

    element: str
    heads: int
    channels: int
    subteams: int = 1
    batch: int = 1
    stride: int | None = None
    over_block: bool = False

    def __post_init__(self) -> None:
        if self.lanes * self.subteams > self.most_lanes:
            raise ValueError(f"Expected 'subteams' to be at most {self.most_lanes // self.lanes} (got {self.subteams})")
        if self.over_block and (self.heads > 1 or self.lanes < BLOCK):
            shape = f'{self.heads} x {self.channels}'
            raise ValueError(f"Expected 'over_block' to be of one head, of {BLOCK} vectors or nearly so (got {shape})")

    @property
    def most_lanes(self) -> int:
        """Lanes that may hold a row."""
        return BLOCK if self.over_block else WARP

    @functools.cached_property
    def compute(self) -> str:
        """The type of arithmetic and of sums."""
        return 'float64' if self.element == 'float64' else 'float32'

    @functools.cached_property
    def vector(self) -> int:
        """Values of one load."""
        widest = LOAD_BYTES // ITEM_BYTES[self.element]
        sizes = (self.channels, self.stride or self.channels)
        return max(size for size in (1, 2, 4, 8) if size <= widest and all(n % size == 0 for n in sizes))

    @functools.cached_property
    def vectors_per_head(self) -> int:
        return self.channels // self.vector

    @functools.cached_property
    def padded(self) -> int:
        """Vectors that each head takes, some of them beyond its channels."""
        needed, most = self.vectors_per_head, self.most_lanes
        return power_of_two_at_least(needed) if needed <= most else -(-needed // most) * most

    @functools.cached_property
    def lanes(self) -> int:
        """Lanes that hold one row."""
        return min(self.most_lanes, power_of_two_at_least(self.heads * self.padded))

    @functools.cached_property
    def team(self) -> int:
        """Lanes that walk one row."""
        return self.lanes * self.subteams

    @functools.cached_property
    def registers(self) -> int:
        """Vectors of one lane."""
        return -(-self.heads * self.padded // self.lanes)

    @functools.cached_property
    def values(self) -> int:
        """Values of a row in one lane."""
        return self.registers * self.vector

    @functools.cached_property
    def per_head(self) -> int:
        """Consecutive vectors of a lane that belong to one head."""
        return max(1, self.padded // self.most_lanes)

    @functools.cached_property
    def head_values(self) -> int:
        """Heads of one lane."""
        return self.registers // self.per_head

    @functools.cached_property
    def lanes_per_head(self) -> int:
        """Lanes that share a head: neighbours, aligned to their number."""
        return min(self.padded, self.most_lanes)

    @functools.cached_property
    def heads_side_by_side(self) -> int:
        """Heads that lie beside each other in one vector of all lanes."""
        return self.lanes // self.lanes_per_head

    @functools.cached_property
    def has_spare_heads(self) -> bool:
        """Whether some lanes hold a head beyond the last."""
        return self.head_values * self.heads_side_by_side > self.heads

    @functools.cached_property
    def has_spare_channels(self) -> bool:
        """Whether some lanes hold vectors beyond the channels of their head."""
        return self.padded > self.vectors_per_head
