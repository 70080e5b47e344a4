# SPDX-License-Identifier: Apache-2.0
"""What becomes of each parameter of the estimators that can be imported: the table of docs/importers.md.

What a parameter did in training is in the trained numbers. Kept are those that `predict` depends on, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Parameters:
    """How the parameters of some estimators are treated. kept, refused: name -> how, or when. rest: names
    of parameters that only affect training, speed or printing.
    """

    estimators: tuple[str, ...]
    kept: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""

    @property
    def names(self) -> set[str]:
        return {*self.kept, *self.refused, *self.rest.split()}


_TREES = (
    "ccp_alpha class_weight criterion max_depth max_features max_leaf_nodes min_impurity_decrease "
    "min_samples_leaf min_samples_split min_weight_fraction_leaf monotonic_cst random_state"
)
_SEARCH = "cv error_score estimator n_jobs pre_dispatch return_train_score scoring verbose"

PARAMETERS = (
    Parameters(("DecisionTreeClassifier",), rest=f"{_TREES} splitter"),
    Parameters(
        ("RandomForestClassifier", "ExtraTreesClassifier"),
        rest=f"{_TREES} bootstrap max_samples n_estimators n_jobs oob_score verbose warm_start",
    ),
    Parameters(
        ("GradientBoostingClassifier",),
        kept={
            "init": "None, `'zero'`, or a DummyClassifier with one answer",
            "learning_rate": "multiplied into the leaves",
            "loss": "`log_loss`, `exponential`",
        },
        refused={"init": "another estimator"},
        rest="ccp_alpha criterion max_depth max_features max_leaf_nodes min_impurity_decrease "
        "min_samples_leaf min_samples_split min_weight_fraction_leaf n_estimators n_iter_no_change "
        "random_state subsample tol validation_fraction verbose warm_start",
    ),
    Parameters(
        ("HistGradientBoostingClassifier",),
        kept={"loss": "`log_loss`"},
        refused={"categorical_features": "if there are any"},
        rest="class_weight early_stopping interaction_cst l2_regularization learning_rate max_bins max_depth "
        "max_features max_iter max_leaf_nodes min_samples_leaf monotonic_cst n_iter_no_change "
        "random_state scoring tol validation_fraction verbose warm_start",
    ),
    Parameters(
        ("MLPClassifier",),
        kept={"activation": "`relu`", "hidden_layer_sizes": "up to the limits of a network"},
        refused={"activation": "others, between layers"},
        rest="alpha batch_size beta_1 beta_2 early_stopping epsilon learning_rate learning_rate_init max_fun "
        "max_iter momentum n_iter_no_change nesterovs_momentum power_t random_state shuffle solver tol "
        "validation_fraction verbose warm_start",
    ),
    Parameters(
        ("LogisticRegression",),
        kept={"fit_intercept": "the bias"},
        rest="C class_weight dual intercept_scaling l1_ratio max_iter multi_class n_jobs penalty "
        "random_state solver tol verbose warm_start",
    ),
    Parameters(
        ("LinearSVC",),
        kept={"fit_intercept": "the bias"},
        rest="C class_weight dual intercept_scaling loss max_iter multi_class penalty random_state tol "
        "verbose",
    ),
    Parameters(
        ("SGDClassifier",),
        kept={"fit_intercept": "the bias"},
        rest="alpha average class_weight early_stopping epsilon eta0 l1_ratio learning_rate loss max_iter "
        "n_iter_no_change n_jobs penalty power_t random_state shuffle tol validation_fraction verbose "
        "warm_start",
    ),
    Parameters(
        ("StandardScaler",),
        kept={"with_mean": "part of the inputs", "with_std": "part of the inputs"},
        rest="copy",
    ),
    Parameters(
        ("MinMaxScaler",),
        kept={"feature_range": "part of the inputs", "clip": "inputs are clipped"},
        rest="copy",
    ),
    Parameters(("MaxAbsScaler",), kept={"clip": "inputs are clipped"}, rest="copy"),
    Parameters(
        ("RobustScaler",),
        kept=dict.fromkeys(
            ("quantile_range", "unit_variance", "with_centering", "with_scaling"), "part of the inputs"
        ),
        rest="copy",
    ),
    Parameters(
        ("Pipeline",),
        kept={
            "steps": "scalers before scikit-learn's trees, networks and linear classifiers, and `passthrough`"
        },
        refused={"steps": "others"},
        rest="memory transform_input verbose",
    ),
    Parameters(
        ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"),
        kept={"refit": "the `best_estimator_` it leaves"},
        refused={"refit": "False"},
        rest=f"{_SEARCH} param_grid param_distributions n_iter random_state aggressive_elimination factor "
        "max_resources min_resources n_candidates resource",
    ),
    Parameters(
        ("XGBClassifier", "XGBRFClassifier"),
        kept={
            "base_score": "as margins",
            "booster": "`gbtree`, `dart`",
            "early_stopping_rounds": "trees up to the best iteration",
            "missing": "NaN, and values whose way no tree changes",
            "objective": "`binary:logistic`, `multi:softprob`, `multi:softmax`, a function",
        },
        refused={
            "booster": "`gblinear`",
            "enable_categorical": "if a tree splits by category",
            "feature_types": "if a tree splits by category",
            "missing": "a number that a tree sends another way than its neighbours",
            "multi_strategy": "`multi_output_tree`",
            "objective": "others; `multi:softprob` with two classes",
        },
        rest="callbacks colsample_bylevel colsample_bynode colsample_bytree device eval_metric "
        "feature_weights gamma grow_policy importance_type interaction_constraints learning_rate max_bin "
        "max_cat_threshold max_cat_to_onehot max_delta_step max_depth max_leaves min_child_weight "
        "monotone_constraints n_estimators n_jobs num_parallel_tree random_state reg_alpha reg_lambda "
        "sampling_method scale_pos_weight subsample tree_method validate_parameters verbosity",
    ),
    Parameters(
        ("LGBMClassifier",),
        kept={
            "boosting_type": "all",
            "objective": "`binary`, `multiclass`",
            "sigmoid": "does not change the class",
            "zero_as_missing": "where no tree changes the way of 0",
        },
        refused={
            "categorical_feature": "if a tree splits by category",
            "linear_tree": "True",
            "objective": "others, and functions",
            "pred_early_stop": "True",
            "zero_as_missing": "if a tree sends 0 another way than its neighbours",
        },
        rest="class_weight colsample_bytree importance_type learning_rate max_depth min_child_samples "
        "min_child_weight min_split_gain n_estimators n_jobs num_leaves random_state reg_alpha reg_lambda "
        "subsample subsample_for_bin subsample_freq num_iteration_predict pred_early_stop_freq "
        "pred_early_stop_margin predict_contrib predict_disable_shape_check predict_leaf_index "
        "predict_raw_score start_iteration_predict",
    ),
)


def parameters_table() -> str:
    """`PARAMETERS` as a Markdown table."""
    head = ("Estimator", "Kept", "Refused", "In the trained numbers, or without effect on `predict`")
    rows = [
        (
            ", ".join(one.estimators),
            _listed(one.kept),
            _listed(one.refused),
            ", ".join(f"`{name}`" for name in sorted(one.rest.split())),
        )
        for one in PARAMETERS
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)) + "\n"


def _listed(names: Mapping[str, str]) -> str:
    return "; ".join(f"`{name}`: {how}" for name, how in sorted(names.items()))
