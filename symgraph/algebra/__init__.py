"""Groups, words, elements and their action on tensors; knows nothing of models."""
