# SPDX-License-Identifier: Apache-2.0
"""Network tomography: which queues of a data centre are congested, told from the delays of probes.

Table 5 and Figure 34 of siracusano-n3ic (appendix C.2), from a simulation of its own: docs/tomography.md.
"""
