"""Words from which Dask itself makes names of operations.

Tasks of operations that a later Dask adds get the name of their function instead, see
:mod:`~daskscope.observe.naming`.
"""

from __future__ import annotations

# In arrays, bags, delayed values and shuffles: split at hyphens and underscores.
_IN_TEXTS = """
    a agg aggregate all along any append arange arg argmax argmin argtopk array asarray astype axis
    b bag barrier bincount block blocks blockwise broadcast by
    cholesky choice chunk coarsen combine compute concat concatenate container copy corrcoef count
    cov creation csv cummax cummin cumprod cumsum
    dask data dataframe delayed diag diagonal dictitems diff distinct divs dot
    empty eye
    file filter finalize first flatten foldby frequencies from fromfunction full func fused
    gather getattr getitem group groupby
    hash head histogram histogramdd
    internal items
    join json
    kurtosis
    last like linspace literal load lower lstsq lt lu
    map matmul max maximum mean median merge metadata min minimum mode moment
    nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum
    nanvar nonzero norm npy numel
    ones orc original overlap
    p p2p pad pandas parquet part partd partial partition pd percentile permute piecewise pluck plu
    prefix prepend prod product ptp
    qr quantile
    random rank read rearrange rechunk reduce reduction remove repartition repeat reshape roll
    sample scalar select seq sequence setitem sfqr shape shuffle singular size skew slice solve sort
    sorter split sql sqrt square stack std store sum svd
    table tail take taker tdigest tensordot text tile to topk total trace transfer transpose tree
    tril triangular triu trim
    u unify unique upper
    value values var vindex
    weights where write
    zarr zeros
"""

# Class names of the expressions of Dask's dataframes and arrays, in lower case.
_EXPRESSIONS = """
    alignpartitions applyconcatapply arrayreduction assignindex assignpartitioningindex
    between bfill blockwisehead blockwiseheadindex blockwiseio blockwisemerge blockwisetail
    blockwisetailindex broadcastjoin broadcasttrick
    compositefinalizecompute concatindexed concatunindexed corr createoverlappingpartitions
    cumulativeaggregations cumulativefinalize customreduction
    decomposablegroupbyaggregation describenonnumeric describenonnumericaggregate describenumeric
    describenumericaggregate diskshuffle doubleoutputs dropduplicates
    expr
    ffill finalizecompute finalizecomputearray finalizecomputedf fromarray fromdelayed fromgraph
    frommap frommapprojectable frompandas frompandasdivisions fromscalars fusedio fusedparquetio
    getcategories groupbyaggregation groupbyapply groupbyapplyconcatapply groupbybfill
    groupbycumcount groupbycumprod groupbycumsum groupbycumulativefinalizer groupbyffill
    groupbyreduction groupbyshift groupbytransform
    hashjoinp2p hlgexpr hlgfinalizecompute holisticgroupbyaggregation
    idxmax idxmin indexcount ismonotonicdecreasing ismonotonicincreasing
    joinrecursive
    len lengths
    mapoverlap mappartitions memoryusage memoryusageframe memoryusageindex
    nbytes nfirst nlargest nlast nsmallest nunique nuniqueapprox
    p2pshuffle partialreduce partitions partitionsfiltered pivottable pivottablecount
    pivottablefirst pivottablelast pivottablesum
    randomchoice randomchoicegenerator readparquet readparquetfsspec readparquetpyarrowfs
    rearrangebycolumn reductionconstantdim repartitiondivisions repartitionfreq
    repartitionquantiles repartitionsize repartitiontofewer repartitiontomore
    resolveoverlappingdivisions
    semimerge seriesquantile seriesquantiledask seriesquantiletdigest setpartition shift
    shufflereduce simpleshuffle singleaggregation sortvalues stackpartition
    stackpartitioninterleaved
    taskshuffle timeseries tobackend toparquet toparquetbarrier toparquetdata
    totalmemoryusageframe treereduce
    valuecounts
"""

WORDS = frozenset(f"{_IN_TEXTS} {_EXPRESSIONS}".split())
