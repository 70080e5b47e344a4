# SPDX-License-Identifier: Apache-2.0
"""Actions, as captured packets show them: the reference of bpf/act/. What only live packets show (mirror,
redirect, challenge, bridge and so on) is in `steering.py` as an outcome.
"""
