# SPDX-License-Identifier: Apache-2.0
"""How long a test waits for what should happen. A machine with other work takes minutes for what takes an
idle one a second, so what lasts longer than this hangs.
"""

PATIENCE_S = 600
