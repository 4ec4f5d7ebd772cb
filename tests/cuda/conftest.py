from __future__ import annotations

import os

# these need NUMBA_ENABLE_CUDASIM=1 before numba is imported; `test_simulator.py` runs them in a process of their own
collect_ignore = [] if os.environ.get('NUMBA_ENABLE_CUDASIM') == '1' else ['simulated']
