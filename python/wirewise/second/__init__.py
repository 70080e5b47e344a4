# SPDX-License-Identifier: Apache-2.0
"""A larger model for the flows that the model on the packet path is unsure of."""
