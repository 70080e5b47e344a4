# SPDX-License-Identifier: Apache-2.0
"""Variants of what a model learns from, in what should not matter: ports, TTLs, pace.

A variant differs from its original in ways that are drawn for all classes alike, so that nothing of what was
drawn says the class. It is learned from beside its original, on the same side of every split, and never
tested.
"""

from wirewise.augment.captures import with_variants
from wirewise.augment.kinds import Augmentation
from wirewise.augment.registry import AUGMENTATIONS, chosen, chosen_for_rows
from wirewise.augment.rows import vary

__all__ = ["AUGMENTATIONS", "Augmentation", "chosen", "chosen_for_rows", "vary", "with_variants"]
