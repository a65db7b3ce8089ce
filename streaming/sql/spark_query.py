"""`reput sql --engine spark`: one query over the message table, by Spark, which only reads the table `messages`.

Spark runs a command while it makes its DataFrame, and a write may occur anywhere in a statement. So, before anything is
run, the check visits the whole parsed plan with every field of every node, and each must be of a kind that is allowed
below. Afterwards that very plan is run; the text is not parsed again.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, VariantVal, YearMonthIntervalType

from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import raise_log_damage
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError, ReputError, TransientError
from reput.source.printable import printable
from reput.streaming.config.run_options import SparkOptions
from reput.streaming.output.paths import check_table
from reput.streaming.spark.session import end_session, start_session, temporary_log_file
from reput.streaming.sql.output import NO_RELATIONS, Relations, Result, Scope, folded

# ----------------------------------------------------------------------------------------------------------------------
# The parts that `reput sql --engine spark` allows in a statement: each only reads the table, or computes.
#
# Anything that is not named here is refused, so that new statements and functions of a later Spark are refused until
# a developer has reviewed them. `FUNCTIONS_REFUSED` has no effect: it records decisions, for the test that compares
# both lists with Spark's own registry.

_CATALYST: Final = "org.apache.spark.sql.catalyst"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _classes(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names.split())


# Nodes of a parsed query. Each of them only describes how rows are made from other rows.
QUERY_NODES: Final = (
    _classes(
        f"{_CATALYST}.plans.logical",
        """
        Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
        LocalRelation NearestByJoin Offset OneRowRelation Pivot Project RepartitionByExpression Sample Sort
        SubqueryAlias Union Unpivot UnresolvedHint UnresolvedWith WithWindowDefinition
        """,
    )
    | _classes(
        f"{_CATALYST}.analysis",
        """
        MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
        UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal UnresolvedQualify UnresolvedRelation UnresolvedStar
        UnresolvedStarExceptOrReplace UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
        UnresolvedTableValuedFunction
        """,
    )
    | _classes(
        f"{_CATALYST}.expressions",
        """
        Add Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce
        Collate Concat CreateNamedStruct Cube CurrentRow$ Divide EqualNullSafe EqualTo Exists GreaterThan
        GreaterThanOrEqual GroupingSets ILike In InSubquery IntegralDivide IsNotNull IsNotUnknown$$anon$2 IsNull
        IsUnknown$$anon$1 LambdaFunction LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny ListQuery
        Literal Lower Multiply NamedArgumentExpression Not NotLikeAll NotLikeAny Or Overlay PipeExpression
        PipeOperator RLike Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight
        ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight
        Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$
        UnboundedPreceding$ UnresolvedCollation UnresolvedNamedLambdaVariable UnresolvedWindowExpression
        UnspecifiedFrame$ WindowExpression WindowSpecDefinition
        """,
    )
    | _classes(f"{_CATALYST}.expressions.aggregate", "AggregateExpression AnyValue First Last")
)

# Statements that describe a query or the table, allowed as the whole statement but not inside one.
STATEMENT_NODES: Final = _classes(
    f"{_CATALYST}.plans.logical", "DescribeColumn DescribeFunction DescribeRelation ShowColumns"
) | _classes("org.apache.spark.sql.execution.command", "DescribeQueryCommand ExplainCommand")

# Nodes that name something in these statements only.
STATEMENT_PARTS: Final = _classes(f"{_CATALYST}.analysis", "UnresolvedFunctionName UnresolvedTableOrView")

# Values that nodes consist of and that may hold further nodes.
PARTS: Final = (
    _classes("scala", "None$ Some Tuple2 Tuple3")
    | _classes(_CATALYST, "AliasIdentifier FunctionIdentifier")
    | _classes(
        f"{_CATALYST}.expressions",
        """
        Ascending$ Descending$ ExprId NullsFirst$ NullsLast$ NumericEvalContext RangeFrame$ RowFrame$
        WindowSpecReference
        """,
    )
    | _classes(f"{_CATALYST}.expressions.aggregate", "Complete$")
    | _classes(f"{_CATALYST}.plans.logical", "JoinHint SampleMethod$Bernoulli$ SampleMethod$System$")
    | _classes(
        f"{_CATALYST}.plans",
        """
        Cross$ FullOuter$ Inner$ LeftAnti$ LeftOuter$ LeftSemi$ NaturalJoin NearestByDistance$ NearestBySimilarity$
        RightOuter$ UsingJoin
        """,
    )
    | _classes(
        f"{_CATALYST}.analysis",
        "UnresolvedTableOrViewSearchPathMode$Ddl$ UnresolvedTableOrViewSearchPathMode$QueryLike$",
    )
    | _classes("org.apache.spark.sql.execution", "CodegenMode$ CostMode$ ExtendedMode$ FormattedMode$ SimpleMode$")
)

# Values that hold no nodes. Spark's data types, texts and numbers are also such values.
VALUES: Final = (
    _classes("java.util", "UUID")
    | _classes("scala", "Enumeration$Val")
    | _classes(f"{_CATALYST}.expressions", "GenericInternalRow")
    | _classes("org.apache.spark.sql.util", "CaseInsensitiveStringMap")
    | _classes("org.apache.spark.unsafe.types", "UTF8String")
)
DATA_TYPES: Final = "org.apache.spark.sql.types."
COLLECTIONS: Final = "scala.collection."

# Functions in expressions, by kind: each computes a value from its arguments, or from the rows it is given.
FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    kind: _names(names)
    for kind, names in {
        "aggregates": """
            any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
            approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
            bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
            covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
            hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
            kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean median
            min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
            regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg
            skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
            theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
            tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
            tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance""",
        "arrays, maps and structs": """
            array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
            array_join array_max array_min array_position array_prepend array_remove array_repeat array_size
            array_union arrays_overlap arrays_zip cardinality concat element_at flatten get map map_concat
            map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values named_struct
            reverse sequence shuffle size slice sort_array str_to_map struct try_element_at""",
        "bits": "& << >> >>> ^ bit_count bit_get getbit shiftleft shiftright shiftrightunsigned | ~",
        "bitmaps": "bitmap_bit_position bitmap_bucket_number bitmap_count",
        "conditions": "between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull",
        "conversions": """
            bigint binary boolean cast date decimal double float int smallint string timestamp tinyint""",
        "csv and json": """
            from_csv from_json get_json_object json_array_length json_object_keys json_tuple schema_of_csv
            schema_of_json to_csv to_json""",
        "dates and times": """
            add_months convert_timezone curdate current_date current_timestamp current_timezone date_add
            date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart
            day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day
            localtimestamp make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz
            make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter
            second session_window time_bucket timestamp_micros timestamp_millis timestamp_seconds
            to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
            to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz
            try_make_timestamp_ntz try_to_date try_to_timestamp unix_date unix_micros unix_millis
            unix_seconds unix_timestamp weekday weekofyear window window_time year""",
        "encryption with a given key": "aes_decrypt aes_encrypt try_aes_decrypt",
        "errors on purpose": "assert_true raise_error",
        "functions of functions": """
            aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys
            transform_values zip_with""",
        "geography": "st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid",
        "hashes": "crc32 hash md5 sha sha1 sha2 xxhash64",
        "mathematics": """
            % * + - / abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot
            csc degrees div e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod
            negative pi pmod positive pow power radians rand randn random rint round sec sign signum sin sinh
            sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex uniform width_bucket""",
        "predicates": """
            ! < <= <=> = == > >= and equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like
            rlike""",
        "rows to several": "explode explode_outer inline inline_outer posexplode posexplode_outer stack",
        "sketches": """
            approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint kll_sketch_get_n_double
            kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
            kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
            kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
            kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float theta_difference
            theta_intersection theta_sketch_estimate theta_union tuple_difference_double
            tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
            tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
            tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
            tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
            tuple_sketch_theta_integer tuple_union_double tuple_union_integer tuple_union_theta_double
            tuple_union_theta_integer""",
        "strings": """
            ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws
            contains decode elt encode endswith find_in_set format_number format_string initcap instr
            is_valid_utf8 lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8
            mask octet_length overlay position printf quote randstr regexp_count regexp_extract
            regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim
            sentences soundex space split split_part startswith substr substring substring_index to_binary
            to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase
            unbase64 upper validate_utf8""",
        "urls, taken apart and never opened": "parse_url try_parse_url try_url_decode url_decode url_encode",
        "variants": """
            is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
            try_variant_get variant_get""",
        "vectors": """
            vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
            vector_sum""",
        "windows": "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number",
        "about the query itself, its session and the files of the table": """
            current_catalog current_database current_path current_schema current_user input_file_block_length
            input_file_block_start input_file_name monotonically_increasing_id session_user spark_partition_id
            typeof user uuid version""",
    }.items()
}

# Functions used as tables: each makes rows from its arguments, or lists what is built into Spark.
TABLE_FUNCTIONS: Final = _names(
    """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range
    sql_keywords stack variant_explode variant_explode_outer
    """
)

# Refused functions by reason. Everything that is not allowed is refused.
FUNCTIONS_REFUSED: Final[dict[str, frozenset[str]]] = {
    reason: _names(names)
    for reason, names in {
        "calls Java": "java_method reflect try_reflect",
        "reads a file of descriptors, or takes classes from outside": """
            from_avro from_protobuf schema_of_avro to_avro to_protobuf""",
        "parses XML, whose schema may be a file": """
            from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
            xpath_number xpath_short xpath_string""",
        "reads another table, or Spark's own state": "python_worker_logs table_changes table_changes_by_path",
        "needs a metric view, and there is none": "measure",
        "needs the type TIME, which Spark has switched off": """
            current_time make_time time time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
            time_to_millis time_to_seconds time_trunc to_time try_to_time""",
    }.items()
}

ALLOWED_FUNCTIONS: Final = frozenset[str]().union(*FUNCTIONS.values())


VIEW = "messages"
_SUBSTITUTE = "spark.sql.variable.substitute"


def parse_query(spark: SparkSession, statement: str, relations: Iterable[str] = ()) -> JavaObject:
    """Return Spark's parsed plan of `statement` if it only reads `messages`.

    `relations` are the names, in lower case, of other relations that it may read.

    Raises
    ------
    OptionError
        It contains something that is not known to only read.
    PySparkException
        Spark's parser does not understand it.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001  the parser has no Python API
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(session)  # the parser uses the settings of this thread's active session
    with _no_substitution(spark):
        plan: JavaObject = session.sessionState().sqlParser().parsePlan(statement)
    check_plan(plan, frozenset(relations))
    return plan


@contextmanager
def _no_substitution(spark: SparkSession) -> Iterator[None]:
    """Leave ``${env:NAME}`` and ``${system:NAME}`` as plain text."""
    before = spark.conf.get(_SUBSTITUTE)
    spark.conf.set(_SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(_SUBSTITUTE, before or "true")


def check_plan(plan: JavaObject, relations: Scope = frozenset()) -> None:
    """Check every node and every value of a parsed plan against what is allowed.

    Raises
    ------
    OptionError
        One is not allowed; its name is in the message.
    """
    is_statement = _class_name(plan) in STATEMENT_NODES
    todo: list[tuple[Any, Scope]] = _fields(plan, relations) if is_statement else [(plan, relations)]
    nodes = QUERY_NODES | (STATEMENT_PARTS if is_statement else frozenset())
    while todo:
        value, scope = todo.pop()
        if isinstance(value, JavaObject):
            todo += _below(value, scope, nodes)


def _below(value: JavaObject, scope: Scope, nodes: frozenset[str]) -> list[tuple[Any, Scope]]:
    """Return what must be checked inside `value`; raise OptionError if `value` itself is not allowed."""
    name = _class_name(value)
    if name in nodes:
        kind = name.rpartition(".")[2]
        if kind == "Literal":  # a value and its type; a list of thousands of them is common
            return []
        _check_names(kind, value, scope)
        return _queries_of_with(value, scope) if kind == "UnresolvedWith" else _fields(value, scope)
    if name in PARTS:
        return _elements(value, scope)
    if name.startswith(COLLECTIONS):
        return _items(value, scope)
    if name in VALUES or name.startswith(DATA_TYPES):
        return []
    raise _refused(f"{_words(name)} is not among the statements and expressions that are known to only read")


def _class_name(value: JavaObject) -> str:
    return str(value.getClass().getName())


def _elements(product: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    return [(product.productElement(index), scope) for index in range(product.productArity())]


def _fields(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """Return a node's fields, with those of its second parameter list."""
    return [*_elements(node, scope), *_items(node.otherCopyArgs(), scope)]


def _items(collection: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    found, iterator = [], collection.iterator()
    while iterator.hasNext():
        found.append((iterator.next(), scope))
    return found


def _queries_of_with(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """Return the queries of WITH, each with the names that it sees: those before it, and itself if they are recursive.

    The rest of the statement sees all of them.
    """
    found: list[tuple[Any, Scope]] = []
    for query, _ in _items(node.cteRelations(), scope):
        name, plan, *more = (value for value, _ in _elements(query, scope))
        known = scope | {folded(name)}
        found += [(value, known if node.allowRecursion() else scope) for value in (plan, *more)]
        scope = known
    return [*found, (node.child(), scope), *_items(node.otherCopyArgs(), scope)]


def _check_names(kind: str, node: JavaObject, scope: Scope) -> None:
    if kind == "UnresolvedRelation":
        _check_table(_parts(node.multipartIdentifier()), scope)
        if node.isStreaming() or not node.options().isEmpty():
            raise _refused(f"{VIEW} is read as it is: no stream of it, no options")
    elif kind == "UnresolvedTableOrView":
        _check_table(_parts(node.multipartIdentifier()), frozenset())
    elif kind == "UnresolvedFunction":
        _check_function(_parts(node.nameParts()), ALLOWED_FUNCTIONS)
    elif kind == "UnresolvedFunctionName":
        _check_function(_parts(node.multipartIdentifier()), ALLOWED_FUNCTIONS | TABLE_FUNCTIONS)
    elif kind == "UnresolvedTableValuedFunction":
        _check_function(_parts(node.name()), TABLE_FUNCTIONS)
    elif kind == "UnresolvedGenerator":
        _check_function(node.name().unquotedString().split("."), TABLE_FUNCTIONS)


def _check_table(parts: list[str], scope: Scope) -> None:
    if len(parts) != 1 or folded(parts[0]) not in {VIEW, *scope}:
        name = ".".join(f"`{part}`" for part in parts)
        raise _refused(f"the only tables are {VIEW} and the statement's own WITH queries; found {name}")


def _check_function(parts: list[str], names: frozenset[str]) -> None:
    if len(parts) != 1 or folded(parts[0]) not in names:
        raise _refused(f"function {'.'.join(parts)} is not among those that are known to only compute or read here")


def _parts(names: JavaObject) -> list[str]:
    return [str(name) for name, _ in _items(names, frozenset())]


def _words(class_name: str) -> str:
    return class_name.rpartition(".")[2].partition("$")[0].removeprefix("Unresolved")


def _refused(what: str) -> OptionError:
    return OptionError(f"refused: {printable(what)} (docs/commands/sql.md)")


# ----------------------------------------------------------------------------------------------------------------------
# Why Spark did not run a query, in one line and with a fitting exit code.
#
# If Spark refuses a statement, or cannot compute its values, the user must change it (`OptionError`). A table that
# cannot be read is an `OutputError`, and a Spark that has ended is a `TransientError`.

# Spark's advice on settings and statements that `reput sql` does not have, and the code of the SQL standard.
_NOISE: Final = re.compile(
    r"\s*If necessary set .*? to bypass this error\."
    r"|\s*It is possible the underlying files have been updated\..*"
    r"|\s*SQLSTATE: \w+",
    re.DOTALL,
)
_CONDITION: Final = re.compile(r"^\[([A-Z_0-9.]+)\] ")
_POSITION: Final = re.compile(r"line (\d+),? pos(ition)? (\d+)")
_FILE: Final = re.compile(r"(?:file:/*)?(/[^\s,]+\.(?:parquet|json|checkpoint|crc|bin))\b")
# Conditions whose cause is the table, not the statement.
_TABLE_CONDITIONS: Final = ("FAILED_READ_FILE", "DELTA_", "CANNOT_READ_", "PATH_NOT_FOUND", "INVALID_LOG_VERSION")
_TOO_DEEP: Final = "the statement is nested too deeply"
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"


@contextmanager
def spark_failures_as_errors(table: TableLocation) -> Iterator[None]:
    """Convert Spark's exceptions into errors of reput; `table` is being read.

    Raises
    ------
    OptionError
        The statement cannot be run, or one of its values cannot be computed or shown.
    OutputError
        The table cannot be read.
    TransientError
        Spark has ended, or does not have enough memory.
    """
    # pyspark logs each error as JSON, including all Java frames, before it raises it.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    except ReputError:
        raise
    except PySparkException as error:
        raise _as_error(table, str(error.getMessage() or error), str(error)) from error
    except Py4JJavaError as error:
        raise _java_as_error(table, error.java_exception) from error
    except BrokenPipeError:
        raise  # of standard output
    except (Py4JNetworkError, Py4JError, ConnectionError, EOFError) as error:
        raise TransientError("Spark's Java process ended while the query ran: start the same command again") from error
    except (ValueError, OverflowError) as error:
        raise OptionError(f"a value of the result cannot be shown: {printable(str(error))}") from error
    except RecursionError as error:
        raise OptionError(_TOO_DEEP) from error


def _java_as_error(table: TableLocation, thrown: Any) -> ReputError:
    """Return the error for a chain of causes: for the first with a condition of Spark, or else for the root cause."""
    messages: list[str] = []
    while thrown is not None and len(messages) < 50:
        name, message = thrown.getClass().getName(), str(thrown.getMessage() or "")
        if name == "java.lang.StackOverflowError":
            return OptionError(_TOO_DEEP)
        if name == _OUT_OF_MEMORY:
            return TransientError("Spark has not enough memory for this query: ask for fewer rows or columns")
        messages.append(message or name.rpartition(".")[2])
        thrown = thrown.getCause()
    named = [message for message in messages if _CONDITION.match(message) and not message.startswith("[INTERNAL_ERROR")]
    return _as_error(table, named[0] if named else messages[-1], " ".join(messages))


def _as_error(table: TableLocation, message: str, whole: str) -> ReputError:
    condition = _CONDITION.match(message.strip())
    name = condition.group(1) if condition else ""
    if (_FILE.search(whole) and not name) or name.startswith(_TABLE_CONDITIONS):
        raise_log_damage(table_storage(table), OSError(message))
        cause = f"cannot read the table {printable(str(table))}: {_line(message)}{_file(message, whole)}"
        return OutputError(cause, file=table)
    return OptionError(f"cannot run the query: {_line(message)}{_position(whole)}")


def _line(message: str) -> str:
    """Return the message on one line, without its condition."""
    text = _CONDITION.sub("", _NOISE.sub("", message).strip())
    return printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def _file(message: str, whole: str) -> str:
    found = _FILE.search(whole)
    return f" ({printable(found.group(1))})" if found and found.group(1) not in message else ""


def _position(whole: str) -> str:
    """Return the position in the statement; Spark counts from 1 after ``position`` and from 0 after ``pos``."""
    found = _POSITION.search(whole)
    return f" (line {found.group(1)}, column {int(found.group(3)) + (not found.group(2))})" if found else ""


# ----------------------------------------------------------------------------------------------------------------------
# The rows of a query that Spark runs.

# The finalizer of the iterator that `toLocalIterator` returns.
_ROWS_GO: Final = "PyLocalIterable.__del__"
# Python has no value for two of these types, so all intervals are shown as Spark's text.
_AS_TEXT: Final = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class SparkResult(Result):
    """The rows of a DataFrame, of which one partition at a time is in memory; Arrow batches are in memory together."""

    def __init__(self, rows: DataFrame) -> None:
        self.names = rows.columns
        self._rows = _with_texts(rows)

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, which need not be read to their end.

        If they are not, pyspark's iterator may find its socket closed when it is finalized, and Python would print
        that.
        """
        if not isinstance(sys.unraisablehook, _UnreadRows):
            sys.unraisablehook = _UnreadRows(sys.unraisablehook)
        return (tuple(map(_plain, row)) for row in self._rows.toLocalIterator())

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, all of them together."""
        table = self._rows.toArrow().rename_columns(self.names)
        return table.schema, iter(table.to_batches())


class _UnreadRows:
    """A hook that ignores failures in finalizing an iterator over rows, and passes all others on to `others`."""

    def __init__(self, others: Callable[[Any], Any]) -> None:
        self._others = others

    def __call__(self, unraisable: Any) -> None:
        name = getattr(unraisable.object, "__qualname__", "")
        if not (name.endswith(_ROWS_GO) and isinstance(unraisable.exc_value, OSError | ValueError)):
            self._others(unraisable)


def _with_texts(result: DataFrame) -> DataFrame:
    if not any(isinstance(field.dataType, _AS_TEXT) for field in result.schema):
        return result
    numbered = result.toDF(*(str(number) for number in range(len(result.columns))))  # names may repeat
    return numbered.select(
        *(
            sql.col(str(number)).cast("string") if isinstance(field.dataType, _AS_TEXT) else sql.col(str(number))
            for number, field in enumerate(result.schema)
        )
    )


def _plain(value: Any) -> Any:
    """Return a value without types of pyspark's: a struct becomes a dict."""
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, VariantVal):
        return _plain(value.toPython())
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


# In addition to the checks of `parse_query`: Spark cannot read a file as a table by its path.
SETTINGS = {"spark.sql.runSQLOnFiles": "false"}


@contextmanager
def spark_query(
    table: TableLocation,
    statement: str,
    options: SparkOptions,
    *,
    version: int | None = None,
    limit: int | None = None,
    relations: Relations = NO_RELATIONS,
    verbose: bool = False,
) -> Iterator[Result]:
    """Start Spark, and have the result of `query` meanwhile; `limit` is the number of its first rows.

    `verbose` leaves Spark's own messages on the terminal. Errors are those of `query` and of ``start_session``.
    """
    check_table(table)
    _write_times_in_utc()
    log_file = None if verbose else temporary_log_file()
    spark = start_session(
        "reput sql",
        master=options.master,
        driver_memory=options.driver_memory,
        log_file=log_file,
        settings=SETTINGS,
        table=table,
    )
    try:
        with spark_failures_as_errors(table):
            rows = query(spark, table, statement, version, relations)
            yield SparkResult(rows if limit is None else rows.limit(limit))
    finally:
        end_session(spark)
        if log_file is not None:
            log_file.unlink(missing_ok=True)


def _write_times_in_utc() -> None:
    """Set the time zone of the process to UTC: Spark hands times to Python in that zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def query(
    spark: SparkSession,
    table: TableLocation,
    statement: str,
    version: int | None = None,
    relations: Relations = NO_RELATIONS,
) -> DataFrame:
    """Return the result of `statement`, which only reads the table, by the name `messages`, and `relations`.

    `version` is the table's version to read; None: the newest.

    Raises
    ------
    OutputError
        There is no Delta table at `table`, or it cannot be read.
    OptionError
        The statement contains something that is not known to only read, or Spark does not understand it.
    """
    check_table(table)
    with spark_failures_as_errors(table):
        plan = parse_query(spark, statement, relations)
        options = {} if version is None else {"versionAsOf": str(version)}
        spark.read.format("delta").options(**options).load(str(table)).createOrReplaceTempView(VIEW)
        for name, few in relations.items():
            spark.createDataFrame(few).createOrReplaceTempView(name)
        return run_plan(spark, plan)


def run_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """Return the result of a plan of ``parse_query``, which runs as it was checked. Errors are Spark's."""
    jvm: Any = spark._jvm  # noqa: SLF001  a plan has no Python API
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001
