# SPDX-License-Identifier: Apache-2.0
"""What the data path costs, and how that is measured."""
