"""What flows through maxima and minima: values of those neighbours that attain one, and NaN from one that is NaN."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import equal

WINNERS = EdgeProgram(
    'winners',
    operands(target='own', source='found value'),
    message=lambda own, found, value: equal(found, own, value, equal(found, found, value - value, found)),
)
