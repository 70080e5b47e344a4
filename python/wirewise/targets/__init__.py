# SPDX-License-Identifier: Apache-2.0
"""What a model is lowered to: one folder a target, each with `emit(model, feature_set) -> Sources`."""
