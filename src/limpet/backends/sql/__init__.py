"""What the engines over SQL share: the verbs over tables of the same names.

An engine brings its statements (`sql/`) and a `Transaction` that runs them inside one transaction.
"""
