"""The engine `http`: a store behind `limpet serve`."""
