"""What the tables of LangGraph's own savers have in common, whatever the database."""

from collections.abc import Collection, Mapping

from limpet.errors import NotFound, Unsupported


def check_columns(
    found: Mapping[str, Collection[str]], wanted: Mapping[str, Collection[str]], nothing: str
) -> None:
    """See that all tables are there with the columns that are read.

    Raises:
        NotFound: a table is missing; `nothing` says so.
        Unsupported: a column is.
    """
    for table, columns in wanted.items():
        if not found[table]:
            raise NotFound(f"{nothing} table=`{table}`")
        missing = [each for each in columns if each not in found[table]]
        if missing:
            where = f"table=`{table}` column=`{missing[0]}`"
            raise Unsupported(f"the tables are those of another saver. {where}")
