# SPDX-License-Identifier: Apache-2.0
"""The files that outlive a process, one module a format: bundles and their manifest and model card, imported
models, training records. Each is read and written in its module only, and carries its version.
"""
